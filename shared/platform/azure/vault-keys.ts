import type { KeyClient, KeyProperties } from "@azure/keyvault-keys";
import * as z from "zod";
import { Problem } from "../http/problem.ts";
import { systemRandomness } from "../runtime.ts";
import { CALL_LIMITS, clientOptions, type Route } from "./calls.ts";
import { type CallTarget, type CloudFailure, type FailedAnswer, failureOfAnswer, unlessMissing } from "./failure.ts";
import {
  type CloudServices,
  listed,
  originOf,
  parsedByClient,
  present,
  type RotationPolicy,
  requireSchema,
  rotationPolicy,
} from "./key-vault.ts";
import { keyVaultPace, type PacedVault } from "./key-vault-pace.ts";
import { isServiceVault } from "./service-key-vault.ts";

/**
 * Rotates keys of key vaults and changes their rotation policies. Scans use key-vault.ts, which changes nothing. No method reads
 * or returns key material. Times are whole seconds since 1970.
 */

/** One version of a key. */
export interface KeyVersion {
  /** 32 hexadecimal characters. */
  version: string;
  enabled: boolean;
  /** True if the key belongs to a certificate of the same name. Key Vault does not rotate such a key. */
  managed: boolean;
  createdOn?: number;
  expiresOn?: number;
}

/** The keys of one vault. Every method throws `CloudFailure`. */
export interface VaultKeys {
  /** Returns the current version of a key, or undefined if the key does not exist. */
  current(name: string, signal?: AbortSignal): Promise<KeyVersion | undefined>;
  /**
   * Adds a version by the key's rotation policy, and returns it. Not retried if there is no response or a 5xx: after an `unclear`
   * failure the caller must compare the current version with the earlier one.
   */
  rotate(name: string, signal?: AbortSignal): Promise<KeyVersion>;
  /** Returns the rotation policy. A key without one has Key Vault's default policy, which only notifies. */
  policy(name: string, signal?: AbortSignal): Promise<RotationPolicy>;
  /** Replaces the rotation policy, and returns it as Key Vault stored it. Safe to repeat. */
  setPolicy(name: string, policy: RotationPolicy): Promise<RotationPolicy>;
}

/** Opens clients that rotate keys of key vaults. */
export interface VaultKeysClients {
  /**
   * @throws {CloudFailure} foreignHost if the address is not https, or not under the cloud's Key Vault domain.
   * @throws {Problem} serviceVault if the name or address, in any case of letters, is that of the service's own vault.
   */
  open(vault: { name: string; vaultUri: string } & Omit<PacedVault, "origin">): VaultKeys;
}

/** https://learn.microsoft.com/azure/key-vault/general/rbac-guide */
const READ_GRANT =
  "the role Key Vault Reader on this vault, or, where it uses access policies, get and getrotationpolicy for keys";
const ROTATE_GRANT =
  "a role with the data action Microsoft.KeyVault/vaults/keys/rotate/action on this vault (see docs/key-rotation.md), or, where it uses access policies, rotate for keys";
const POLICY_GRANT =
  "a role with the data action Microsoft.KeyVault/vaults/keyrotationpolicies/write on this vault (see docs/key-rotation.md), or, where it uses access policies, setrotationpolicy for keys";

const KEY = /^\/keys\/[0-9A-Za-z-]{1,127}\/?$/;
const ROTATE = /^\/keys\/[0-9A-Za-z-]{1,127}\/rotate\/?$/;
const POLICY = /^\/keys\/[0-9A-Za-z-]{1,127}\/rotationpolicy\/?$/;

const keyProperties = z.object({ name: z.string(), version: z.string().regex(/^[0-9a-f]{32}$/i) });

export function createVaultKeys(services: CloudServices): VaultKeysClients {
  const { config, identity, log, randomness = systemRandomness(), limits } = services;
  const suffix = config.cloud.keyVaultSuffix;

  return {
    open({ name: vaultName, vaultUri, ...paceMembers }) {
      const resource = `key vault ${vaultName}`;
      const origin = originOf(vaultUri, suffix, { operation: "open the vault", resource });
      if (isServiceVault(config, vaultName) || isServiceVault(config, origin)) {
        throw new Problem("serviceVault", `${vaultName} is the service's own key vault, which is never rotated.`);
      }
      const pace = keyVaultPace.vault({ ...paceMembers, origin });

      /** Makes one call. With `once`, a request without a response, or with a 5xx, is not retried. */
      async function call<T>(
        target: CallTarget,
        path: RegExp,
        work: (client: KeyClient) => Promise<T>,
        { signal, once = false }: { signal?: AbortSignal | undefined; once?: boolean } = {},
      ): Promise<T> {
        const { KeyClient } = await import("@azure/keyvault-keys");
        const route = (requested: string): Route | undefined =>
          path.test(requested) ? { target, answer: "parsedByClient" } : undefined;
        const callLimits = { ...CALL_LIMITS, ...limits, ...(once && { unreachableTries: 1 }) };
        const scope = `https://${suffix}/.default`;
        const options = { origin, scope, identity, route, resource, signal, pace, log, randomness, limits: callLimits };
        const failureOf = once ? unclearIfUnavailable : undefined;
        const client = new KeyClient(
          origin,
          await identity.credential(),
          await clientOptions({ ...options, failureOf }),
        );
        return await parsedByClient(target, () => work(client));
      }

      return {
        async current(name, signal) {
          const target = { operation: "read a key", resource, grant: READ_GRANT };
          const key = await unlessMissing(call(target, KEY, (client) => client.getKey(name), { signal }));
          return key && versionOf(key.properties, target);
        },

        async rotate(name, signal) {
          const target = { operation: "rotate a key", resource, grant: ROTATE_GRANT };
          const key = await call(target, ROTATE, (client) => client.rotateKey(name), { signal, once: true });
          return versionOf(key.properties, target);
        },

        async policy(name, signal) {
          const target = { operation: "read a key's rotation policy", resource, grant: READ_GRANT };
          return rotationPolicy(
            await call(target, POLICY, (client) => client.getKeyRotationPolicy(name), { signal }),
            target,
          );
        },

        async setPolicy(name, policy) {
          const target = { operation: "change a key's rotation policy", resource, grant: POLICY_GRANT };
          return rotationPolicy(
            await call(target, POLICY, (client) => client.updateKeyRotationPolicy(name, policy)),
            target,
          );
        },
      };
    },
  };
}

/**
 * Returns `unreachable` for each 503. With `Retry-After`, it would otherwise be `throttled`, which is retried. But a gateway may
 * return it after Key Vault has added the version.
 */
const unclearIfUnavailable = (answer: FailedAnswer, target: CallTarget): CloudFailure | undefined =>
  answer.status === 503 ? failureOfAnswer({ ...answer, header: () => undefined }, target) : undefined;

function versionOf(properties: KeyProperties, target: CallTarget): KeyVersion {
  requireSchema(keyProperties, properties, target);
  const { enabled, managed, createdOn, expiresOn } = listed(properties);
  return { version: properties.version!.toLowerCase(), enabled, managed, ...present({ createdOn, expiresOn }) };
}
