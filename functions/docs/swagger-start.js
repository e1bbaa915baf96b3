/**
 * Renders the page /docs with Swagger UI. Swagger UI adds "Bearer " to an entered token. People often enter "Bearer " too, so a
 * repeated "Bearer " is removed.
 */
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
