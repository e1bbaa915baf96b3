/** Renders the page /redoc with Redoc. */
Redoc.init("/openapi.json", { hideDownloadButton: false }, document.getElementById("redoc"));
