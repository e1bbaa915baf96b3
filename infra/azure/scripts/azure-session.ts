// The cloud, the sign-in to Azure and the inputs of the commands that a deployer runs: make-secrets.ts and first-password.ts.

import { text } from "node:stream/consumers";
import { cloudEndpoints } from "../../../shared/platform/config/clouds.ts";
import { exitWithUsageError } from "../../build/command-line.ts";

const { AZURE_CLOUD, AZURE_AUTHORITY_HOST, AZURE_RESOURCE_MANAGER_ENDPOINT } = process.env;
export const cloud = cloudEndpoints({
  AZURE_CLOUD: AZURE_CLOUD || "AzureCloud",
  AZURE_AUTHORITY_HOST: AZURE_AUTHORITY_HOST || undefined,
  AZURE_RESOURCE_MANAGER_ENDPOINT: AZURE_RESOURCE_MANAGER_ENDPOINT || undefined,
});

/** Returns the credential of the signed-in person or application. */
export async function signedInCredential() {
  const { DefaultAzureCredential } = await import("@azure/identity");
  return new DefaultAzureCredential({
    authorityHost: cloud.authorityHost,
    // Instance discovery asks the public cloud about the authority. The public cloud does not know every configured authority.
    disableInstanceDiscovery: Boolean(AZURE_AUTHORITY_HOST),
  });
}

/** Matches the resource id of a key vault. */
export const VAULT_ID =
  /^\/subscriptions\/([^/]+)\/resourceGroups\/([^/]+)\/providers\/Microsoft\.KeyVault\/vaults\/([^/]+)$/i;

/** Returns the match of an environment variable with a pattern. Exits with 1 if it does not match. */
export function required(name: string, pattern: RegExp, what = "the resource id"): RegExpExecArray {
  const match = pattern.exec(process.env[name] ?? "");
  if (!match) {
    console.error(`${name} must be ${what} from the deployment's outputs.`);
    process.exit(1);
  }
  return match;
}

/** Reads the password from standard input, without the line break at its end. Exits with 2 if the service would reject it. */
export async function readPassword(): Promise<string> {
  const password = (await text(process.stdin)).replace(/\r?\n$/, "");
  return password.length >= 12 && password.length <= 256
    ? password
    : exitWithUsageError("The password must have 12 to 256 characters");
}
