"""Books what happens in GitHub repositories, once for each webhook delivery."""
