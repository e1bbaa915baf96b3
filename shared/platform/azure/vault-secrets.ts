import type { PipelinePolicy } from "@azure/core-rest-pipeline";
import type { SecretClient, SecretProperties } from "@azure/keyvault-secrets";
import { Problem } from "../http/problem.ts";
import { systemRandomness } from "../runtime.ts";
import { CALL_LIMITS, clientOptions, type Route } from "./calls.ts";
import { failure, unlessMissing } from "./failure.ts";
import { type CloudServices, listed, originOf, present } from "./key-vault.ts";
import { deletedSecretAnswer, secretAnswer, secretVersionsRoute } from "./key-vault-answers.ts";
import { keyVaultPace, type PacedVault } from "./key-vault-pace.ts";
import { isServiceVault } from "./service-key-vault.ts";

/**
 * Reads and writes secrets of key vaults with their values, for rotation and sync only. Scans use key-vault.ts, which reads no
 * values. Times are whole seconds since 1970.
 */

/** One version of a secret without its value. */
export interface SecretVersion {
  name: string;
  /** 32 hexadecimal characters. */
  version: string;
  enabled: boolean;
  contentType?: string;
  tags: Record<string, string>;
  notBefore?: number;
  expiresOn?: number;
  createdOn?: number;
  updatedOn?: number;
  /** True if the secret belongs to a certificate of the same name. Such a secret can't be written. */
  managed: boolean;
}

/** The properties of a new version. No property is inherited from the previous version. */
export interface NewSecretVersion {
  /** At most 25,600 bytes: https://learn.microsoft.com/azure/key-vault/secrets/about-secrets */
  value: string;
  contentType?: string | undefined;
  /** At most 15 tags, with names and values of up to 256 characters. */
  tags?: Record<string, string> | undefined;
  notBefore?: number | undefined;
  expiresOn?: number | undefined;
}

/** The secrets of one vault. Every method throws `CloudFailure`. */
export interface VaultSecrets {
  /**
   * Lists all versions without values, the newest first. Returns an empty list if the secret does not exist. Key Vault stores
   * times in seconds, so versions of the same second have no defined order. Use `read` to get the current version.
   */
  versions(name: string, signal?: AbortSignal): Promise<SecretVersion[]>;
  /**
   * Reads a version of a secret with its value. Without `version` it reads the current version. Returns undefined if the
   * version does not exist.
   *
   * @throws {CloudFailure} disabled if that version is disabled.
   */
  read(name: string, version?: string, signal?: AbortSignal): Promise<(SecretVersion & { value: string }) | undefined>;
  /**
   * Adds a version. Not retried if there is no response: after an `unclear` failure the caller must search for the version by
   * its tags.
   *
   * @throws {CloudFailure} deleted if a recoverable deleted secret has the name; conflict while the secret is being deleted or
   * recovered.
   */
  write(name: string, version: NewSecretVersion): Promise<SecretVersion>;
  /** Enables or disables one version. */
  enable(name: string, version: string, enabled: boolean): Promise<void>;
  /** Returns a deleted secret that can be recovered, or undefined if there is none. */
  deleted(name: string): Promise<{ tags: Record<string, string> } | undefined>;
  /**
   * Recovers a deleted secret, which can be used some seconds later. Does nothing if there is no deleted secret of that name.
   */
  recover(name: string): Promise<void>;
  /** Deletes all versions, which stay recoverable. Does nothing if the secret does not exist. */
  remove(name: string): Promise<void>;
}

/** Opens clients that read and write the secrets of key vaults. */
export interface VaultSecretsClients {
  /**
   * @throws {CloudFailure} foreignHost if the address is not https, or not under the cloud's Key Vault domain.
   * @throws {Problem} serviceVault if the name or address, in any case of letters, is that of the service's own vault.
   */
  open(vault: { name: string; vaultUri: string } & Omit<PacedVault, "origin">): VaultSecrets;
}

/** https://learn.microsoft.com/azure/key-vault/general/rbac-guide */
const GRANT =
  "the role Key Vault Secrets Officer on this vault, or, where it uses access policies, get, list, set, delete and recover for secrets";
const SECRET = /^\/secrets\/[0-9A-Za-z-]{1,127}(\/[0-9A-Za-z]*)?$/;
const DELETED = /^\/deletedsecrets\/[0-9A-Za-z-]{1,127}(\/recover)?$/;

export function createVaultSecrets(services: CloudServices): VaultSecretsClients {
  const { config, identity, log, randomness = systemRandomness(), limits } = services;
  const suffix = config.cloud.keyVaultSuffix;

  return {
    open({ name: vaultName, vaultUri, ...paceMembers }) {
      const resource = `key vault ${vaultName}`;
      const origin = originOf(vaultUri, suffix, { operation: "open the vault", resource });
      if (isServiceVault(config, vaultName) || isServiceVault(config, origin)) {
        throw new Problem("serviceVault", `${vaultName} is the service's own key vault. Name another one.`);
      }

      const pace = keyVaultPace.vault({ ...paceMembers, origin });

      /**
       * Creates a client for one call or one list. The clients share the connections of the process. With `once`, a request
       * without a response is not retried.
       */
      async function client(
        operation: string,
        {
          signal,
          once = false,
          policies = [],
        }: { signal?: AbortSignal | undefined; once?: boolean; policies?: PipelinePolicy[] } = {},
      ): Promise<SecretClient> {
        const { SecretClient } = await import("@azure/keyvault-secrets");
        const target = { operation, resource, grant: GRANT };
        const route = (path: string): Route | undefined => {
          if (DELETED.test(path))
            return { target, answer: path.endsWith("/recover") ? secretAnswer : deletedSecretAnswer };
          return (
            secretVersionsRoute(path, target) ?? (SECRET.test(path) ? { target, answer: secretAnswer } : undefined)
          );
        };
        const scope = `https://${suffix}/.default`;
        const callLimits = { ...CALL_LIMITS, ...limits, ...(once && { unreachableTries: 1 }) };
        const options = { origin, scope, identity, route, resource, signal, pace, log, randomness, limits: callLimits };
        const { additionalPolicies, ...otherOptions } = await clientOptions(options);
        const callerPolicies = policies.map((policy) => ({ policy, position: "perCall" as const }));
        return new SecretClient(origin, await identity.credential(), {
          ...otherOptions,
          additionalPolicies: [...callerPolicies, ...additionalPolicies],
        });
      }

      return {
        async versions(name, signal) {
          const pages = (await client("list versions of a secret", { signal })).listPropertiesOfSecretVersions(name);
          const versions: SecretVersion[] = [];
          for await (const page of pages.byPage()) versions.push(...page.map(versionOf));
          return versions.sort((a, b) => (b.createdOn ?? 0) - (a.createdOn ?? 0));
        },

        async read(name, version, signal) {
          const reading = await client("read a secret", { signal });
          const secret = await unlessMissing(reading.getSecret(name, version === undefined ? {} : { version }));
          if (secret === undefined) return undefined;
          if (secret.value === undefined) {
            const reason = "the answer has no value";
            throw failure("badResponse", { operation: "read a secret", resource }, reason, {
              remedy: "Check proxies and private DNS between here and the vault.",
            });
          }
          return { ...versionOf(secret.properties), value: secret.value };
        },

        async write(name, { value, contentType, tags, notBefore, expiresOn }) {
          const policies = [datesPolicy(present({ nbf: notBefore, exp: expiresOn }))];
          const writing = await client("write a secret", { once: true, policies });
          const { properties } = await writing.setSecret(name, value, present({ contentType, tags }));
          return versionOf(properties);
        },

        async enable(name, version, enabled) {
          await (await client("switch a version of a secret on or off")).updateSecretProperties(name, version, {
            enabled,
          });
        },

        async deleted(name) {
          const secret = await unlessMissing((await client("look at a deleted secret")).getDeletedSecret(name));
          return secret && { tags: listed(secret.properties).tags };
        },

        async recover(name) {
          // The call does not wait until the secret can be used, which takes some seconds.
          await unlessMissing((await client("recover a deleted secret")).beginRecoverDeletedSecret(name));
        },

        async remove(name) {
          await unlessMissing((await client("delete a secret")).beginDeleteSecret(name));
        },
      };
    },
  };
}

/** Adds the dates to the request body, because the SDK truncates the seconds of a date to 32 bits, which end in 2038. */
function datesPolicy(attributes: { nbf?: number; exp?: number }): PipelinePolicy {
  return {
    name: "secretDatesPolicy",
    sendRequest(request, next) {
      const body = JSON.parse(String(request.body)) as { attributes?: object };
      request.body = JSON.stringify({ ...body, attributes: { ...body.attributes, ...attributes } });
      return next(request);
    },
  };
}

function versionOf(properties: SecretProperties): SecretVersion {
  return {
    ...listed(properties),
    version: properties.version ?? "",
    ...present({ contentType: properties.contentType }),
  };
}
