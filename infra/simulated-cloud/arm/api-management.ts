import type { CloudClock } from "../clock.ts";
import type { VaultStore } from "../vaults/vault-store.ts";
import type { ConsumerValues } from "./consumer-values.ts";
import { principalsOf } from "./identities.ts";
import { parseSecretUri } from "./key-vault-references.ts";
import { type ReadResult, readSecret } from "./read-secret.ts";
import type { ArmResource, ArmStore } from "./resource-store.ts";

const REFRESH_MS = 4 * 3_600_000;

interface KeyVault {
  secretIdentifier: string;
  /** Client ID of a user-assigned identity. Without it API Management reads with its system-assigned identity. */
  identityClientId?: string | null;
}

/**
 * Simulates the named values and certificates that API Management reads from a vault every 4 hours and on request:
 * https://learn.microsoft.com/azure/api-management/api-management-howto-properties#key-vault-secrets
 */
export class ApiManagement {
  readonly #parts: { resources: VaultStore; store: ArmStore; clock: CloudClock; working: ConsumerValues };
  /** Time and outcome of the last read, by resource ID in lower case. */
  readonly #read = new Map<string, { at: number; reading: ReadResult; value?: string }>();
  /** IDs whose value never changes: neither a refresh nor the 4-hour read updates them. */
  readonly #stuck = new Set<string>();

  constructor(parts: { resources: VaultStore; store: ArmStore; clock: CloudClock; working: ConsumerValues }) {
    this.#parts = parts;
    for (const resource of parts.store.all()) if (readsVault(resource)) this.refresh(resource);
  }

  /** Turns the updates of a named value off or on again. */
  plant(id: string, staysOld: boolean): void {
    if (staysOld) this.#stuck.add(id.toLowerCase());
    else this.#stuck.delete(id.toLowerCase());
  }

  settle(): void {
    const now = this.#parts.clock.now();
    for (const [id, { at }] of this.#read) {
      const times = Math.floor((now - at) / REFRESH_MS);
      if (times < 1 || this.#stuck.has(id)) continue;
      const resource = this.#parts.store.get(id);
      if (resource === undefined) this.#read.delete(id);
      else {
        this.refresh(resource, at + REFRESH_MS);
        this.#read.get(id)!.at = at + times * REFRESH_MS;
      }
    }
  }

  /** Reads the vault now. If the secret can't be read, the previous value stays. */
  refresh(resource: ArmResource, at = this.#parts.clock.now()): void {
    const id = resource.id.toLowerCase();
    const before = this.#read.get(id);
    if (this.#stuck.has(id) && before !== undefined) return;
    const { secretIdentifier, identityClientId } = keyVaultOf(resource)!;
    const place = parseSecretUri(secretIdentifier);
    const service = this.#parts.store.get(resource.id.split("/").slice(0, 9).join("/"))!;
    const principals = principalsOf(service.identity, this.#identity(service, identityClientId));
    const reading: ReadResult =
      place === undefined ? { problem: "noVault" } : readSecret(this.#parts, principals, place);
    const value = "problem" in reading ? before?.value : reading.value;
    this.#read.set(id, { at, reading, ...(value !== undefined && { value }) });
    if (place !== undefined) this.#parts.working.record(resource.id, resource.name, place, value, at);
  }

  /** Returns the vault secret that a named value or certificate refers to. Undefined when it refers to no vault. */
  lastStatus(resource: ArmResource): object | undefined {
    const read = this.#read.get(resource.id.toLowerCase());
    if (read === undefined) return undefined;
    const timeStampUtc = new Date(read.at).toISOString();
    if (!("problem" in read.reading)) return { code: "Success", timeStampUtc };
    const code = read.reading.problem === "notAllowed" ? "AccessDenied" : "SecretNotFound";
    return { code, message: `Failed to read the secret from Key Vault: ${read.reading.problem}.`, timeStampUtc };
  }

  /** Returns the value of a named value. */
  valueOf(resource: ArmResource): string | undefined {
    const { value } = resource.properties;
    return typeof value === "string" ? value : this.#read.get(resource.id.toLowerCase())?.value;
  }

  #identity(service: ArmResource, clientId: string | null | undefined): string | undefined {
    if (clientId === undefined || clientId === null) return undefined;
    const users = Object.entries(service.identity?.userAssignedIdentities ?? {});
    return users.find(([, one]) => one.clientId === clientId)?.[0] ?? "none";
  }
}

export const readsVault = (resource: ArmResource): boolean =>
  (resource.type.noun === "NamedValue" || resource.type.noun === "ApiManagementCertificate") &&
  keyVaultOf(resource) !== undefined;

const keyVaultOf = ({ properties }: ArmResource): KeyVault | undefined => properties.keyVault as KeyVault | undefined;
