import type { Schemas } from "../../api/client.ts";

type Provider = Schemas["NewSyncRecord"]["targetProvider"];

/** What each provider's secrets can be kept in. */
export const SERVICES = {
  azure: ["keyvault"],
  aws: ["secretsmanager", "parameterstore"],
  hashicorp: ["kv"],
  google: ["secretmanager"],
  github: ["actions"],
  kubernetes: ["secret"],
} as const satisfies Record<Provider, readonly string[]>;

/** Where a record's copy is, in a line. */
export const targetText = (one: Schemas["SyncRecord"]): string =>
  [one.targetProvider, one.targetService, one.targetRegion, one.targetName].filter(Boolean).join(" ");
