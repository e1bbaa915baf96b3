import { CheckMessage, DEFAULT_PORT, QUEUE } from "../shared/certificates/endpoint.ts";
import {
  CertificateEndpoint,
  CheckedEndpoints,
  EndpointAddressQuery,
  EndpointCheckRequest,
  EndpointList,
  EndpointQuery,
  endpointView,
  NewEndpoint,
} from "../shared/certificates/endpoints-api.ts";
import { pageRequest, pageView } from "../shared/platform/http/paging.ts";
import { created, Deleted, deleted, ok } from "../shared/platform/http/reply.ts";
import { endpoint, poison, queue, timer } from "./declare.ts";

/*
 * Endpoints (hosts and ports) at which certificates of key vaults are served, and the check that the current version is served
 * there.
 */

const tag = "Dependencies";
const ENDPOINTS = "api/assets/dependencies/endpoints";
const EXAMPLE_ID = "kv-payments-prod.certificate.www";

const listCertificateEndpoints = endpoint({
  name: "listCertificateEndpoints",
  method: "GET",
  route: ENDPOINTS,
  summary: "List the endpoints that serve certificates",
  description:
    "Ordered by vault and name of the certificate. Contains endpoints that people added, and host names of resources that a discovery of dependencies found. Each endpoint has the result of its last check.",
  tag,
  access: "user",
  tier: "pro",
  query: EndpointQuery,
  example: { query: { limit: "10" } },
  responds: { 200: EndpointList },
  problems: ["notFound"],
  handle: async ({ query, services }) => {
    const { assetId, ...page } = query;
    const now = services.clock.now();
    const endpoints = await services.certificateEndpoints.list(assetId, pageRequest(page));
    return ok(pageView(endpoints, (row) => endpointView(row, now)));
  },
});

const addCertificateEndpoint = endpoint({
  name: "addCertificateEndpoint",
  method: "POST",
  route: ENDPOINTS,
  summary: "Add an endpoint that serves a certificate",
  description:
    "Checks the endpoint with a TLS handshake, adds it, and returns the result. Sends no HTTP request. A certificate has at most five added endpoints (409). Returns 400 for a port that is neither 443 nor in ENDPOINT_PORTS, and for a private address that is not in ENDPOINT_PRIVATE_RANGES.",
  tag,
  access: "operator",
  tier: "pro",
  body: NewEndpoint,
  example: { body: { assetId: EXAMPLE_ID, host: "www.example.com" } },
  responds: { 201: CertificateEndpoint },
  problems: ["notFound", "conflict", "alreadyExists", "serviceVault"],
  repeat: {
    idOf: ({ assetId, host, port }) => `${assetId}/${host}:${port}`,
    answer: async ({ id, services }) => {
      const [, assetId = "", host = "", port] = /^(.*)\/(.*):(\d+)$/.exec(id) ?? [];
      const row = await services.certificateEndpoints.get({ assetId, host, port: Number(port) });
      return endpointView(row, services.clock.now());
    },
  },
  handle: async ({ body, caller, services }) => {
    const row = await services.certificateEndpoints.add(body, caller);
    const view = endpointView(row, services.clock.now());
    return created(view, `/${ENDPOINTS}?assetId=${encodeURIComponent(view.assetId)}`);
  },
});

const removeCertificateEndpoint = endpoint({
  name: "removeCertificateEndpoint",
  method: "DELETE",
  route: ENDPOINTS,
  summary: "Remove an endpoint that a person added",
  description: "Endpoints that a discovery of dependencies found can't be removed (409). They follow the resource.",
  tag,
  access: "operator",
  tier: "pro",
  query: EndpointAddressQuery,
  example: { query: { assetId: EXAMPLE_ID, host: "www.example.com" } },
  responds: { 200: Deleted },
  problems: ["notFound", "conflict"],
  handle: async ({ query: { assetId, host, port = DEFAULT_PORT }, caller, services }) => {
    await services.certificateEndpoints.remove({ assetId, host, port }, caller);
    return deleted();
  },
});

const checkCertificateEndpoints = endpoint({
  name: "checkCertificateEndpoints",
  method: "POST",
  route: `${ENDPOINTS}/check`,
  summary: "Check the endpoints of a certificate now",
  description:
    "Reads the certificate that each endpoint serves, with a TLS handshake of at most ten seconds. The schedule ENDPOINT_CHECKS_SCHEDULE checks all endpoints, by default every hour.",
  tag,
  access: "operator",
  tier: "pro",
  body: EndpointCheckRequest,
  example: { body: { assetId: EXAMPLE_ID } },
  responds: { 200: CheckedEndpoints },
  problems: ["notFound", "conflict", "serviceVault"],
  harmlessRepeat: true,
  handle: async ({ body, caller, services }) => {
    const rows = await services.certificateEndpoints.check(body.assetId, caller);
    const now = services.clock.now();
    return ok({ items: rows.map((row) => endpointView(row, now)) });
  },
});

export const endpoints = [
  listCertificateEndpoints,
  addCertificateEndpoint,
  removeCertificateEndpoint,
  checkCertificateEndpoints,
];

export const timers = [
  timer({
    name: "checkAllCertificateEndpoints",
    schedule: { setting: "ENDPOINT_CHECKS_SCHEDULE" },
    handle: ({ services }) => services.certificateEndpoints.sendChecks(),
  }),
];

export const queues = [
  queue({
    name: "checkCertificateEndpointsQueue",
    queue: QUEUE,
    message: CheckMessage,
    handle: (message, { services }) => services.certificateEndpoints.handle(message),
  }),
  poison({
    name: "checkCertificateEndpointsFailed",
    of: QUEUE,
    message: CheckMessage,
    // The next run of the timer checks the endpoints again.
  }),
];
