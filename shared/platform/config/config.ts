import type * as z from "zod";
import { validationMessage } from "../validation-message.ts";
import { Environment } from "./environment.ts";

/**
 * The parsed environment variables. If a value is invalid, `loadConfig` throws an error with all problems, and the process
 * stops instead of failing later. Runtime settings, which an administrator can override through the API, are checked for their
 * format only. The settings module checks their bounds.
 */
export type Config = z.output<typeof Environment>;

/** Names of all settings that are read, in the order of their groups. */
export const SETTING_NAMES: readonly string[] = Object.keys(Environment.in.shape);

type EnvironmentVariables = Record<string, string | undefined>;

/** https://learn.microsoft.com/azure/app-service/app-service-key-vault-references#troubleshoot-key-vault-references */
const UNRESOLVED_REFERENCE =
  "is a Key Vault reference that the platform could not resolve: check that the secret exists and that the app's system-assigned identity has the role Key Vault Secrets User";

/**
 * Returns the problems that concern several settings. Checked even if single values are invalid, so that one start reports
 * every problem.
 */
function crossSettingProblems(given: EnvironmentVariables): [name: string, message: string][] {
  const problems: [string, string][] = [];
  const requireTogether = (a: string, b: string) => {
    if (!given[a] !== !given[b]) problems.push([given[a] ? b : a, `must be set together with ${given[a] ? a : b}`]);
  };
  if (
    !given.AzureWebJobsStorage &&
    !given.AzureWebJobsStorage__accountName &&
    !given.AzureWebJobsStorage__tableServiceUri
  ) {
    problems.push([
      "AzureWebJobsStorage",
      "is missing: set a connection string, or AzureWebJobsStorage__accountName with an identity",
    ]);
  }
  requireTogether("AzureWebJobsStorage__tableServiceUri", "AzureWebJobsStorage__queueServiceUri");
  requireTogether("BOOTSTRAP_ADMIN_USERNAME", "BOOTSTRAP_ADMIN_PASSWORD");
  requireTogether("ENTRA_API_CLIENT_ID", "ENTRA_TENANT_IDS");
  for (const [name, value] of Object.entries(given)) {
    // If App Service can't resolve a reference, the value is the reference itself. As a password it would not be secret.
    if (value?.startsWith("@Microsoft.KeyVault(")) problems.push([name, UNRESOLVED_REFERENCE]);
  }
  if (given.AZURE_CLIENT_SECRET && !(given.AZURE_CLIENT_ID && given.AZURE_TENANT_ID)) {
    problems.push(["AZURE_CLIENT_SECRET", "needs AZURE_CLIENT_ID and AZURE_TENANT_ID beside it"]);
  }
  const warning = Number(given.WARNING_EXPIRY_DAYS ?? 30);
  if (Number(given.CRITICAL_EXPIRY_DAYS ?? 7) >= warning) {
    problems.push(["CRITICAL_EXPIRY_DAYS", `must be below WARNING_EXPIRY_DAYS (${warning})`]);
  }
  return problems;
}

/** The environment is invalid. The message has one line per invalid setting and never contains a value. */
export class ConfigError extends Error {
  constructor(problems: readonly (readonly [name: string, message: string])[]) {
    super(
      ["The configuration is not valid:", ...problems.map(([name, message]) => `  ${name}: ${message}`)].join("\n"),
    );
    this.name = "ConfigError";
  }
}

/**
 * Parses and validates the environment. Bicep and Terraform write an empty value for a setting that is not set.
 *
 * @throws {ConfigError} with all problems.
 */
export function loadConfig(environment: EnvironmentVariables): Config {
  const given = Object.fromEntries(
    Object.entries(environment).filter(([, value]) => value !== undefined && value !== ""),
  ) as EnvironmentVariables;
  // jitless: the schema is used once, and compiling it would take longer than parsing.
  const result = Environment.safeParse(given, { error: validationMessage, jitless: true });
  const invalid = result.success
    ? []
    : result.error.issues.map((issue) => [String(issue.path[0] ?? ""), issue.message] as const);
  const problems = [...invalid, ...crossSettingProblems(given)];
  if (!result.success || problems.length > 0) throw new ConfigError(problems);
  return result.data;
}
