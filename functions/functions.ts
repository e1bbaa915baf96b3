/** All functions of the app, by area. An area is loaded when one of its functions is called for the first time. */
import type { Endpoint } from "../shared/platform/http/endpoint.ts";
import { loadOnce } from "../shared/platform/load-once.ts";
import type { QueueDeclaration, TimerDeclaration } from "./declare.ts";
import type { Services } from "./services.ts";

/** The exports of a file with declarations. */
export interface Area {
  readonly endpoints?: Endpoint<Services>[];
  readonly timers?: TimerDeclaration[];
  readonly queues?: QueueDeclaration[];
}

/** The areas by name, each with the function that loads its declarations. */
export const AREAS: Readonly<Record<string, () => Promise<Area>>> = {
  doctor: () => import("./doctor.ts"),
  system: () => import("./system.ts"),
  metrics: () => import("./metrics.ts"),
  license: () => import("./license.ts"),
  auth: () => import("./auth.ts"),
  apiTokens: () => import("./api-tokens.ts"),
  secondFactor: () => import("./second-factor.ts"),
  confirmations: () => import("./confirmations.ts"),
  users: () => import("./users.ts"),
  sso: () => import("./sso.ts"),
  discovery: () => import("./discovery.ts"),
  subscriptions: () => import("./subscriptions.ts"),
  coverage: () => import("./coverage.ts"),
  search: () => import("./search.ts"),
  applications: () => import("./applications.ts"),
  settings: () => import("./settings.ts"),
  devops: () => import("./devops.ts"),
  compliance: () => import("./compliance.ts"),
  certificates: () => import("./certificates.ts"),
  cryptography: () => import("./cryptography.ts"),
  certificateRenewal: () => import("./certificate-renewal.ts"),
  certificateEndpoints: () => import("./certificate-endpoints.ts"),
  sync: () => import("./sync.ts"),
  b2c: () => import("./b2c.ts"),
  alerts: () => import("./alerts.ts"),
  alertSummary: () => import("./alert-summary.ts"),
  audit: () => import("./audit.ts"),
  auditStreams: () => import("./audit-streams.ts"),
  reconciliation: () => import("./reconciliation.ts"),
  rotationMatches: () => import("./rotation-matches.ts"),
  secretless: () => import("./secretless.ts"),
  rotations: () => import("./rotations.ts"),
  rotationCredentials: () => import("./rotation-credentials.ts"),
  keyRotation: () => import("./key-rotation.ts"),
  dependencyRotation: () => import("./dependency-rotation.ts"),
  dependencies: () => import("./dependencies.ts"),
  maintenance: () => import("./maintenance.ts"),
  page: () => import("./page.ts"),
  documentation: loadOnce(async () => (await import("./docs.ts")).documentation(allEndpoints)),
  mcp: loadOnce(async () => (await import("./mcp.ts")).mcp(allEndpoints)),
  proposals: loadOnce(async () => (await import("./proposals.ts")).proposals(allEndpoints)),
  catchAll: () => import("./catch-all.ts"),
};

/** Returns the declarations of all areas. */
export async function declarations(): Promise<Required<Area>> {
  const areas = await Promise.all(Object.values(AREAS).map((load) => load()));
  return {
    endpoints: areas.flatMap(({ endpoints = [] }) => endpoints),
    timers: areas.flatMap(({ timers = [] }) => timers),
    queues: areas.flatMap(({ queues = [] }) => queues),
  };
}

async function allEndpoints(): Promise<Endpoint<Services>[]> {
  return (await declarations()).endpoints;
}
