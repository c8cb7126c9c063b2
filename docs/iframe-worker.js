// A page opened from disk may not start a worker, which search is: there it runs in a hidden frame instead.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      frame.srcdoc = `<script src="${url}"></script>`;
      this.inside = new Promise((ready) => {
        frame.onload = () => {
          const own = frame.contentWindow;
          own.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
          ready(own);
        };
      });
      document.body.append(frame);
    }

    async postMessage(data) {
      (await this.inside).dispatchEvent(new MessageEvent("message", { data }));
    }
  };
}
