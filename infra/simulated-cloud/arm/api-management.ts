import type { CloudClock } from "../clock.ts";
import type { VaultStore } from "../vaults/vault-store.ts";
import type { ConsumerValues } from "./consumer-values.ts";
import { principalsOf } from "./identities.ts";
import { parseSecretUri } from "./key-vault-references.ts";
import { type ReadResult, readSecret } from "./read-secret.ts";
import type { ArmResource, ArmStore } from "./resource-store.ts";

/** Interval at which API Management reads its vault secrets again. */
const REFRESH_MS = 4 * 3_600_000;

/** Reference of a named value or certificate to a vault secret. */
interface KeyVault {
  secretIdentifier: string;
  /** Client ID of a user-assigned identity. Without it API Management reads with its system-assigned identity. */
  identityClientId?: string | null;
}

/**
 * Simulates named values and certificates of API Management, which it reads from a vault every 4 hours and on request:
 * https://learn.microsoft.com/azure/api-management/api-management-howto-properties#key-vault-secrets
 */
export class ApiManagement {
  readonly #parts: { resources: VaultStore; store: ArmStore; clock: CloudClock; consumerValues: ConsumerValues };
  /** Time and outcome of the last read, by resource ID in lower case. */
  readonly #lastReads = new Map<string, { at: number; reading: ReadResult; value?: string }>();
  /** IDs of resources that a test excludes from updates: neither a refresh nor the 4-hour read changes their value. */
  readonly #withoutUpdates = new Set<string>();

  constructor(parts: { resources: VaultStore; store: ArmStore; clock: CloudClock; consumerValues: ConsumerValues }) {
    this.#parts = parts;
    for (const resource of parts.store.all()) if (readsVault(resource)) this.refresh(resource);
  }

  /** Turns the updates of a named value off (`staysOld`) or on again. */
  setStaysOld(id: string, staysOld: boolean): void {
    if (staysOld) this.#withoutUpdates.add(id.toLowerCase());
    else this.#withoutUpdates.delete(id.toLowerCase());
  }

  /**
   * Runs the reads that are due by the simulated clock. After several missed intervals the vault is read once, and the time of
   * the last read is the end of the last whole interval.
   */
  runDueWork(): void {
    const now = this.#parts.clock.now();
    for (const [id, { at: readAt }] of this.#lastReads) {
      const times = Math.floor((now - readAt) / REFRESH_MS);
      if (times < 1 || this.#withoutUpdates.has(id)) continue;
      const resource = this.#parts.store.get(id);
      if (resource === undefined) this.#lastReads.delete(id);
      else {
        this.refresh(resource, readAt + REFRESH_MS);
        this.#lastReads.get(id)!.at = readAt + times * REFRESH_MS;
      }
    }
  }

  /** Reads the vault now. If the secret can't be read, the previous value stays. */
  refresh(resource: ArmResource, readAt = this.#parts.clock.now()): void {
    const id = resource.id.toLowerCase();
    const previous = this.#lastReads.get(id);
    if (this.#withoutUpdates.has(id) && previous !== undefined) return;
    const { secretIdentifier, identityClientId } = keyVaultOf(resource)!;
    const location = parseSecretUri(secretIdentifier);
    // The first nine segments of the ID are the API Management service, which has the identities.
    const service = this.#parts.store.get(resource.id.split("/").slice(0, 9).join("/"))!;
    const principals = principalsOf(service.identity, this.#identity(service, identityClientId));
    const reading: ReadResult =
      location === undefined ? { problem: "noVault" } : readSecret(this.#parts, principals, location);
    const value = "problem" in reading ? previous?.value : reading.value;
    this.#lastReads.set(id, { at: readAt, reading, ...(value !== undefined && { value }) });
    if (location !== undefined) this.#parts.consumerValues.record(resource.id, resource.name, location, value, readAt);
  }

  /** Returns the outcome of the last read, as `lastStatus` of the REST API. Undefined if the resource was never read. */
  lastStatus(resource: ArmResource): object | undefined {
    const lastRead = this.#lastReads.get(resource.id.toLowerCase());
    if (lastRead === undefined) return undefined;
    const timeStampUtc = new Date(lastRead.at).toISOString();
    if (!("problem" in lastRead.reading)) return { code: "Success", timeStampUtc };
    const code = lastRead.reading.problem === "notAllowed" ? "AccessDenied" : "SecretNotFound";
    return { code, message: `Failed to read the secret from Key Vault: ${lastRead.reading.problem}.`, timeStampUtc };
  }

  /** Returns the value of a named value. */
  valueOf(resource: ArmResource): string | undefined {
    const { value } = resource.properties;
    return typeof value === "string" ? value : this.#lastReads.get(resource.id.toLowerCase())?.value;
  }

  /** Returns the resource ID of an identity by its client ID. `none`, which matches no identity, if the service lacks it. */
  #identity(service: ArmResource, clientId: string | null | undefined): string | undefined {
    if (clientId === undefined || clientId === null) return undefined;
    const users = Object.entries(service.identity?.userAssignedIdentities ?? {});
    return users.find(([, one]) => one.clientId === clientId)?.[0] ?? "none";
  }
}

/** Returns whether the resource is a named value or certificate that refers to a vault secret. */
export const readsVault = (resource: ArmResource): boolean =>
  (resource.type.noun === "NamedValue" || resource.type.noun === "ApiManagementCertificate") &&
  keyVaultOf(resource) !== undefined;

const keyVaultOf = ({ properties }: ArmResource): KeyVault | undefined => properties.keyVault as KeyVault | undefined;
