import type { CloudClock } from "../clock.ts";
import type { VaultStore } from "../vaults/vault-store.ts";
import type { ConsumerValues } from "./consumer-values.ts";
import { allPrincipalsOf } from "./identities.ts";
import { parseSecretUri } from "./key-vault-references.ts";
import { readSecret } from "./read-secret.ts";
import type { ArmResource, ArmStore } from "./resource-store.ts";

// Simulates resources that read a vault secret on a schedule or at each use, such as application gateways and data
// factories.

const HOUR_MS = 3_600_000;

/** A field of a resource that refers to a vault secret. */
interface SecretUse {
  /** Name of the field, under which the value is recorded. */
  evidence: string;
  vault: string;
  secret: string;
  version?: string;
}

/** How the resources of a type read secrets. */
interface ReaderType {
  /** Interval of the platform's reads. 0 if the resource reads at each use. */
  intervalMs: number;
  uses(resource: ArmResource, store: ArmStore): SecretUse[];
}

/**
 * Resource types that read secrets on their own schedule and have no refresh operation. Intervals:
 * https://learn.microsoft.com/azure/application-gateway/key-vault-certs,
 * https://learn.microsoft.com/azure/frontdoor/standard-premium/how-to-configure-https-custom-domain,
 * https://learn.microsoft.com/azure/app-service/configure-ssl-certificate,
 * https://learn.microsoft.com/azure/container-apps/key-vault-certificates-manage. The other types read when they run.
 */
const READER_TYPES: Record<string, ReaderType | undefined> = {
  ApplicationGateway: { intervalMs: 4 * HOUR_MS, uses: gatewayUses },
  FrontDoorSecret: { intervalMs: 72 * HOUR_MS, uses: frontDoorUses },
  AppServiceCertificate: { intervalMs: 24 * HOUR_MS, uses: certificateUses },
  EnvironmentCertificate: { intervalMs: 12 * HOUR_MS, uses: environmentUses },
  LinkedService: { intervalMs: 0, uses: linkedServiceUses },
  Workflow: { intervalMs: 0, uses: workflowUses },
};

/**
 * Simulates the resources that read secrets on a schedule: Application Gateway, Front Door, App Service certificates, and
 * resources that read at each run.
 */
export class ScheduledReaders {
  readonly #parts: { resources: VaultStore; store: ArmStore; clock: CloudClock; consumerValues: ConsumerValues };
  /** Time of the last read, by ID in lower case. */
  readonly #lastReads = new Map<string, number>();

  constructor(parts: { resources: VaultStore; store: ArmStore; clock: CloudClock; consumerValues: ConsumerValues }) {
    this.#parts = parts;
    for (const resource of parts.store.all()) this.add(resource);
  }

  /** Adds a resource, if its type reads secrets on a schedule. */
  add(resource: ArmResource): void {
    if (READER_TYPES[resource.type.noun] !== undefined) this.#readSecrets(resource, this.#parts.clock.now());
  }

  /**
   * Runs the reads that are due by the simulated clock. After several missed intervals the secrets are read once, and the time
   * of the last read is the end of the last whole interval.
   */
  runDueReads(): void {
    const now = this.#parts.clock.now();
    for (const [id, at] of this.#lastReads) {
      const resource = this.#parts.store.get(id);
      if (resource === undefined) {
        this.#lastReads.delete(id);
        continue;
      }
      const { intervalMs } = READER_TYPES[resource.type.noun]!;
      const times = intervalMs === 0 ? 0 : Math.floor((now - at) / intervalMs);
      if (times >= 1) {
        this.#readSecrets(resource, at + intervalMs);
        this.#lastReads.set(id, at + times * intervalMs);
      }
    }
  }

  /** Must be called when a vault secret has a new value. Resources that read at each use read it at once. */
  secretChanged(vault: string, secret: string): void {
    for (const id of this.#lastReads.keys()) {
      const resource = this.#parts.store.get(id);
      if (resource === undefined || READER_TYPES[resource.type.noun]!.intervalMs > 0) continue;
      const uses = READER_TYPES[resource.type.noun]!.uses(resource, this.#parts.store);
      if (uses.some((one) => equalIgnoringCase(one.vault, vault) && equalIgnoringCase(one.secret, secret)))
        this.#readSecrets(resource, this.#parts.clock.now());
    }
  }

  /** Reads the secret again. If it can't be read, the previous value stays. */
  #readSecrets(resource: ArmResource, at: number): void {
    this.#lastReads.set(resource.id.toLowerCase(), at);
    for (const { evidence, ...location } of READER_TYPES[resource.type.noun]!.uses(resource, this.#parts.store)) {
      const reading = readSecret(this.#parts, this.#principals(resource), location);
      if ("problem" in reading) continue;
      this.#parts.consumerValues.record(resource.id, evidence, location, reading.value, at);
      if (resource.type.noun !== "FrontDoorSecret") continue;
      // Only the certificate's thumbprint shows which version the resource uses.
      const parameters = resource.properties.parameters as object;
      resource.properties = {
        ...resource.properties,
        parameters: { ...parameters, thumbprint: reading.version.toUpperCase().padEnd(40, "0") },
      };
    }
  }

  /**
   * Returns the identities that read the secret: the resource's own, or its parent's. App Service reads certificates with an
   * identity of the platform.
   */
  #principals(resource: ArmResource): string[] | undefined {
    const { store } = this.#parts;
    if (resource.type.noun === "AppServiceCertificate") return undefined;
    // The first nine parts of a child's ID are its parent's:
    // `/subscriptions/ID/resourceGroups/NAME/providers/NAMESPACE/TYPE/NAME`.
    const owner = resource.identity ? resource : (store.get(resource.id.split("/").slice(0, 9).join("/")) ?? resource);
    return allPrincipalsOf(owner.identity);
  }
}

/** Returns a use as a list. Empty if the URI is not the address of a vault secret. */
function use(evidence: string, uri: unknown): SecretUse[] {
  const location = typeof uri === "string" ? parseSecretUri(uri) : undefined;
  return location === undefined ? [] : [{ evidence, ...location }];
}

function gatewayUses({ properties }: ArmResource): SecretUse[] {
  const { sslCertificates = [] } = properties as {
    sslCertificates?: { name: string; properties?: { keyVaultSecretId?: string } }[];
  };
  return sslCertificates.flatMap((one) => use(`sslCertificates/${one.name}`, one.properties?.keyVaultSecretId));
}

function frontDoorUses({ properties }: ArmResource): SecretUse[] {
  const { parameters } = properties as {
    parameters?: { secretSource?: { id?: string }; useLatestVersion?: boolean; secretVersion?: string };
  };
  const [, vault, secret] =
    /\/vaults\/([^/]+)\/(?:secrets|certificates)\/([^/]+)/i.exec(parameters?.secretSource?.id ?? "") ?? [];
  if (vault === undefined || secret === undefined) return [];
  const version = parameters?.useLatestVersion ? undefined : parameters?.secretVersion;
  return [{ evidence: "parameters.secretSource", vault, secret, ...(version && { version }) }];
}

function certificateUses({ properties }: ArmResource): SecretUse[] {
  const { keyVaultId = "", keyVaultSecretName } = properties as { keyVaultId?: string; keyVaultSecretName?: string };
  const vault = keyVaultId.split("/").at(-1);
  return vault && keyVaultSecretName ? [{ evidence: "keyVaultSecretName", vault, secret: keyVaultSecretName }] : [];
}

function environmentUses({ properties }: ArmResource): SecretUse[] {
  const { certificateKeyVaultProperties } = properties as { certificateKeyVaultProperties?: { keyVaultUrl?: string } };
  return use("certificateKeyVaultProperties", certificateKeyVaultProperties?.keyVaultUrl);
}

interface FactorySecret {
  type?: string;
  secretName?: unknown;
  secretVersion?: unknown;
  store?: { referenceName?: string };
}

/** Returns the fields that name a vault secret through a linked service of the same data factory. Expressions are skipped. */
function linkedServiceUses(resource: ArmResource, store: ArmStore): SecretUse[] {
  const factory = resource.id.split("/").slice(0, -1).join("/");
  const uses: SecretUse[] = [];
  const collect = (value: unknown, path: string): void => {
    if (typeof value !== "object" || value === null) return;
    const { type, secretName, secretVersion, store: vaultService } = value as FactorySecret;
    const vault = vaultOf(store.get(`${factory}/${vaultService?.referenceName}`));
    if (type === "AzureKeyVaultSecret" && typeof secretName === "string" && vault !== undefined) {
      const version = typeof secretVersion === "string" && secretVersion !== "" ? { version: secretVersion } : {};
      uses.push({ evidence: path, vault, secret: secretName, ...version });
    }
    for (const [name, inner] of Object.entries(value)) collect(inner, path === "" ? name : `${path}.${name}`);
  };
  collect(resource.properties.typeProperties, "");
  return uses;
}

function vaultOf(service: ArmResource | undefined): string | undefined {
  const { baseUrl } = (service?.properties.typeProperties ?? {}) as { baseUrl?: string };
  return /^https:\/\/([^./]+)\./.exec(baseUrl ?? "")?.[1];
}

/**
 * Returns the workflow actions that get a secret through a connection to a vault:
 * `/secrets/@{encodeURIComponent('NAME')}/value`.
 */
function workflowUses({ properties }: ArmResource, store: ArmStore): SecretUse[] {
  const { definition, parameters } = properties as {
    definition?: {
      actions?: Record<string, { inputs?: { path?: string; host?: { connection?: { name?: string } } } }>;
    };
    parameters?: { $connections?: { value?: Record<string, { connectionId?: string }> } };
  };
  return Object.entries(definition?.actions ?? {}).flatMap(([action, { inputs }]) => {
    const name = /\['([^']+)'\]$/.exec(inputs?.host?.connection?.name ?? "")?.[1] ?? "";
    const connection = store.get(parameters?.$connections?.value?.[name]?.connectionId ?? "");
    const { parameterValues } = (connection?.properties ?? {}) as { parameterValues?: { vaultName?: string } };
    const secret = /^\/secrets\/@\{encodeURIComponent\('([^']+)'\)\}\/value$/.exec(inputs?.path ?? "")?.[1];
    const vault = parameterValues?.vaultName;
    return secret === undefined || vault === undefined ? [] : [{ evidence: `actions/${action}`, vault, secret }];
  });
}

const equalIgnoringCase = (a: string, b: string): boolean => a.toLowerCase() === b.toLowerCase();
