"""pfl-research's CIFAR-10 benchmark: the same network, users and rounds by fedlin, by bare JAX and by pfl itself."""
