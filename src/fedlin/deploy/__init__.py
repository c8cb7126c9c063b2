"""From a folder to a running federation: certificates, a site's files, processes, jobs and what they report."""
