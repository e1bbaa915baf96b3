import type { SecretClient } from "@azure/keyvault-secrets";
import * as z from "zod";
import type { Config } from "../config/config.ts";
import { systemRandomness } from "../runtime.ts";
import { CALL_LIMITS, clientOptions, type Route } from "./calls.ts";
import { foreignHost, unlessMissing } from "./failure.ts";
import type { CloudServices } from "./key-vault.ts";

/**
 * Client of the service's own key vault, which stores data that must not be in tables, such as signing keys and copies of new
 * secret values. The methods throw `CloudFailure`.
 */
export interface ServiceKeyVault {
  /**
   * Returns the tags of a secret, or undefined if the secret does not exist. Some secrets store data only in their tags: up to
   * 15, with names and values of up to 256 characters:
   * https://learn.microsoft.com/azure/key-vault/secrets/about-secrets#secret-tags
   */
  readTags(name: string): Promise<Record<string, string> | undefined>;
  /** Sets the tags of the current version. Adds no version, because single versions can't be deleted and would accumulate. */
  writeTags(name: string, tags: Record<string, string>): Promise<void>;
  /** Returns the value of a version, by default the newest. Returns undefined if the version does not exist. */
  readSecret(name: string, version?: string): Promise<string | undefined>;
  /** Returns the newest version of a secret with its value, or undefined if there is none. */
  readNewest(name: string): Promise<{ version: string; value: string } | undefined>;
  /** Adds a version and returns its ID. Earlier versions stay readable. */
  writeSecret(name: string, value: string, contentType: string, tags?: Record<string, string>): Promise<string>;
  /** Deletes the secret with all versions, which stay recoverable. Does nothing if the secret does not exist. */
  removeSecret(name: string): Promise<void>;
}

/**
 * Returns whether a vault, given by name or address in any spelling, is the service's own. Vault names are unique in a cloud
 * and ignore case.
 */
export function isServiceVault(config: Pick<Config, "SERVICE_KEY_VAULT_URL">, vault: string): boolean {
  if (config.SERVICE_KEY_VAULT_URL === undefined) return false;
  const host = URL.canParse(vault) ? new URL(vault).hostname : vault;
  const nameOf = (text: string) => text.trim().toLowerCase().split(".")[0];
  return nameOf(host) === nameOf(new URL(config.SERVICE_KEY_VAULT_URL).hostname);
}

const GRANT = "the role Key Vault Secrets Officer on the service's own key vault";
/** Paths of a secret or a version. `/deletedsecrets` is included because the SDK reads the deleted secret after a deletion. */
const SECRET = /^\/(deleted)?secrets\/[0-9A-Za-z-]{1,127}(\/[0-9A-Za-z]*)?$/;
const secret = z.object({ id: z.string(), tags: z.record(z.string(), z.string()).nullish() });

/**
 * Creates the client of the service's own key vault. Returns undefined if `SERVICE_KEY_VAULT_URL` is not set.
 *
 * @throws {CloudFailure} foreignHost if the URL is not under the cloud's Key Vault domain.
 */
export function createServiceKeyVault(services: CloudServices): ServiceKeyVault | undefined {
  const { config, identity, log, randomness = systemRandomness(), limits } = services;
  if (config.SERVICE_KEY_VAULT_URL === undefined) return undefined;
  const { keyVaultSuffix } = config.cloud;
  const { origin, hostname } = new URL(config.SERVICE_KEY_VAULT_URL);
  const resource = "the service's own key vault";
  if (!hostname.endsWith(`.${keyVaultSuffix}`)) throw foreignHost({ operation: "open the vault", resource }, origin);

  const route = (operation: string) => (path: string) =>
    SECRET.test(path) ? ({ target: { operation, resource, grant: GRANT }, answer: secret } satisfies Route) : undefined;

  async function client(operation: string): Promise<SecretClient> {
    const { SecretClient } = await import("@azure/keyvault-secrets");
    const scope = `https://${keyVaultSuffix}/.default`;
    const options = { origin, scope, identity, route: route(operation), resource, log, randomness };
    return new SecretClient(
      origin,
      await identity.credential(),
      await clientOptions({ ...options, limits: { ...CALL_LIMITS, ...limits } }),
    );
  }

  /** Returns the properties of the newest version, or undefined if the secret does not exist. */
  async function newest(name: string) {
    return (await unlessMissing((await client("read a secret")).getSecret(name)))?.properties;
  }

  return {
    async readTags(name) {
      const properties = await newest(name);
      return properties && (properties.tags ?? {});
    },

    async writeTags(name, tags) {
      const version = (await newest(name))?.version;
      // A secret needs a value. This one stores its data in the tags, so `-` stands for the value.
      if (version === undefined) await (await client("write a secret")).setSecret(name, "-", { tags });
      else await (await client("write a secret")).updateSecretProperties(name, version, { tags });
    },

    async readSecret(name, version) {
      return (
        await unlessMissing((await client("read a secret")).getSecret(name, version === undefined ? {} : { version }))
      )?.value;
    },

    async readNewest(name) {
      const newestSecret = await unlessMissing((await client("read a secret")).getSecret(name));
      return newestSecret && { version: versionOf(newestSecret.properties), value: newestSecret.value ?? "" };
    },

    async writeSecret(name, value, contentType, tags) {
      const options = tags === undefined ? { contentType } : { contentType, tags };
      const { properties } = await (await client("write a secret")).setSecret(name, value, options);
      return versionOf(properties);
    },

    async removeSecret(name) {
      await unlessMissing((await client("delete a secret")).beginDeleteSecret(name));
    },
  };
}

function versionOf({ version }: { version?: string }): string {
  if (!version) throw new Error("A secret that was read or written has a version.");
  return version;
}
