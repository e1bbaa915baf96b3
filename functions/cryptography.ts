import { CbomQuery, PostQuantumList, PostQuantumQuery, postQuantumView } from "../shared/cryptography/api.ts";
import { pageRequest, pageView } from "../shared/platform/http/paging.ts";
import { content, ok } from "../shared/platform/http/reply.ts";
import { builtVersion } from "./built-version.ts";
import { endpoint } from "./declare.ts";

/* Endpoints about the algorithms of keys and certificates. */

const tag = "Compliance";

const exportCbom = endpoint({
  name: "exportCbom",
  method: "GET",
  route: "compliance/cbom",
  summary: "Export keys and certificates as a cryptographic bill of materials",
  description:
    'Returns CycloneDX 1.7 with each key and certificate, its algorithm and dates, and the resources that use it. Each part is a valid document with up to 5,000 assets; the header `Link: <…>; rel="next"` leads to the next part. The serial number depends only on the contents.',
  tag,
  access: "user",
  tier: "core",
  query: CbomQuery,
  example: { query: { vault: "kv-payments-prod" } },
  responds: {
    200: {
      description: "A part of the bill.",
      mediaType: "application/vnd.cyclonedx+json",
      example: '{"bomFormat":"CycloneDX","specVersion":"1.7","version":1,"components":[],"dependencies":[]}',
    },
  },
  handle: async ({ query, url, services }) => {
    const { cursor, ...filter } = query;
    const { json, nextCursor } = await services.cryptography.cbom(filter, cursor, builtVersion().version);
    const next = new URLSearchParams(url.searchParams);
    if (nextCursor !== null) next.set("cursor", nextCursor);
    return content("application/vnd.cyclonedx+json; version=1.7", json, {
      "Content-Disposition": 'attachment; filename="cbom.cdx.json"',
      ...(nextCursor !== null && { Link: `<${url.pathname}?${next}>; rel="next"` }),
    });
  },
});

const listPostQuantum = endpoint({
  name: "listPostQuantum",
  method: "GET",
  route: "compliance/post-quantum",
  summary: "List keys and certificates by how urgently they need post-quantum algorithms",
  description:
    "Returns for each enabled key and certificate the dates of NIST IR 8547, CNSA 2.0 and BSI TR-02102. Assets that a quantum computer breaks come first, then those of unknown algorithms. Among them, those that must protect the longest come first, then those with the most consumers. Each request reads all keys and certificates that match the filters.",
  tag,
  access: "user",
  tier: "core",
  query: PostQuantumQuery,
  example: { query: { limit: "10" } },
  responds: { 200: PostQuantumList },
  handle: async ({ query, services }) => {
    const { limit, cursor, ...filter } = query;
    const { page, summary } = await services.cryptography.postQuantum(filter, pageRequest({ limit, cursor }));
    return ok({ ...pageView(page, postQuantumView), summary });
  },
});

export const endpoints = [exportCbom, listPostQuantum];
