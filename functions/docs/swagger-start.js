/** Draws /docs. Swagger UI adds "Bearer " itself; people paste it too, as the specification writes the header. */
window.ui = SwaggerUIBundle({
  url: "/openapi.json",
  dom_id: "#swagger-ui",
  deepLinking: true,
  validatorUrl: null,
  requestInterceptor: (request) => {
    const header = request.headers.Authorization;
    if (header) request.headers.Authorization = header.replace(/^(Bearer\s+)+/i, "Bearer ");
    return request;
  },
});
