"""The demo's parts: what is sent (`plan`), what runs (`running`), what is shown (`view`), what must be so (`check`)."""
