import type * as z from "zod";
import { wordsOf } from "../validation-message.ts";
import { Environment } from "./environment.ts";

/**
 * Everything the environment says, parsed once. `loadConfig` names every bad value at once and the start stops there:
 * a service that runs on half a configuration fails later and less clearly. The runtime settings (those an administrator
 * may override through the API) have their bounds in the settings room; here they are only checked to be well formed.
 */
export type Config = z.output<typeof Environment>;

/** The names of every setting that is read, by their groups. */
export const SETTING_NAMES: readonly string[] = Object.keys(Environment.in.shape);

type Given = Record<string, string | undefined>;

/** https://learn.microsoft.com/azure/app-service/app-service-key-vault-references#troubleshoot-key-vault-references */
const UNRESOLVED_REFERENCE =
  "is a Key Vault reference that the platform could not resolve: check that the secret exists and that the app's system-assigned identity has the role Key Vault Secrets User";

/** What is wrong only beside something else. Looked at in any case, so that one start names every problem. */
function contradictions(given: Given): [name: string, message: string][] {
  const found: [string, string][] = [];
  const together = (a: string, b: string) => {
    if (!given[a] !== !given[b]) found.push([given[a] ? b : a, `must be set together with ${given[a] ? a : b}`]);
  };
  if (
    !given.AzureWebJobsStorage &&
    !given.AzureWebJobsStorage__accountName &&
    !given.AzureWebJobsStorage__tableServiceUri
  ) {
    found.push([
      "AzureWebJobsStorage",
      "is missing: set a connection string, or AzureWebJobsStorage__accountName with an identity",
    ]);
  }
  together("AzureWebJobsStorage__tableServiceUri", "AzureWebJobsStorage__queueServiceUri");
  together("BOOTSTRAP_ADMIN_USERNAME", "BOOTSTRAP_ADMIN_PASSWORD");
  together("ENTRA_API_CLIENT_ID", "ENTRA_TENANT_IDS");
  for (const [name, value] of Object.entries(given)) {
    // The platform leaves the reference itself in place where it can't resolve it: as a password it would be no secret.
    if (value?.startsWith("@Microsoft.KeyVault(")) found.push([name, UNRESOLVED_REFERENCE]);
  }
  if (given.AZURE_CLIENT_SECRET && !(given.AZURE_CLIENT_ID && given.AZURE_TENANT_ID)) {
    found.push(["AZURE_CLIENT_SECRET", "needs AZURE_CLIENT_ID and AZURE_TENANT_ID beside it"]);
  }
  const warning = Number(given.WARNING_EXPIRY_DAYS ?? 30);
  if (Number(given.CRITICAL_EXPIRY_DAYS ?? 7) >= warning) {
    found.push(["CRITICAL_EXPIRY_DAYS", `must be below WARNING_EXPIRY_DAYS (${warning})`]);
  }
  return found;
}

/** The environment is not usable; the message has one line per bad value and never the value itself. */
export class ConfigError extends Error {
  constructor(problems: readonly (readonly [name: string, message: string])[]) {
    super(
      ["The configuration is not valid:", ...problems.map(([name, message]) => `  ${name}: ${message}`)].join("\n"),
    );
    this.name = "ConfigError";
  }
}

/** @throws {ConfigError} naming every problem. An empty value counts as not set, as Bicep and Terraform write them. */
export function loadConfig(environment: Given): Config {
  const given = Object.fromEntries(
    Object.entries(environment).filter(([, value]) => value !== undefined && value !== ""),
  ) as Given;
  // Parsed once, so that to compile the schema first takes longer than it saves.
  const result = Environment.safeParse(given, { error: wordsOf, jitless: true });
  const invalid = result.success
    ? []
    : result.error.issues.map((issue) => [String(issue.path[0] ?? ""), issue.message] as const);
  const problems = [...invalid, ...contradictions(given)];
  if (!result.success || problems.length > 0) throw new ConfigError(problems);
  return result.data;
}
