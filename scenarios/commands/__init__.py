"""What the verbs of `kvtier` do, a module each; they load on use, since most runs need few of them."""
