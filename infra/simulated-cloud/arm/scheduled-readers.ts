import type { CloudClock } from "../clock.ts";
import type { Resources } from "../vaults/vault-store.ts";
import type { WorkingValues } from "./consumer-values.ts";
import { allPrincipalsOf } from "./identities.ts";
import { placeOfUri } from "./key-vault-references.ts";
import { readSecret } from "./read-secret.ts";
import type { ArmResource, ArmStore } from "./resource-store.ts";

const HOUR_MS = 3_600_000;

interface Use {
  /** Name of the field. */
  evidence: string;
  vault: string;
  secret: string;
  version?: string;
}

interface Reader {
  /** Interval of the platform's reads. 0: reads at each use. */
  everyMs: number;
  uses(resource: ArmResource, store: ArmStore): Use[];
}

/**
 * Resource types that read secrets on their own schedule and have no refresh operation. Intervals:
 * https://learn.microsoft.com/azure/application-gateway/key-vault-certs,
 * https://learn.microsoft.com/azure/frontdoor/standard-premium/how-to-configure-https-custom-domain,
 * https://learn.microsoft.com/azure/app-service/configure-ssl-certificate,
 * https://learn.microsoft.com/azure/container-apps/key-vault-certificates-manage. The other types read when they run.
 */
const READERS: Record<string, Reader | undefined> = {
  ApplicationGateway: { everyMs: 4 * HOUR_MS, uses: gatewayUses },
  FrontDoorSecret: { everyMs: 72 * HOUR_MS, uses: frontDoorUses },
  AppServiceCertificate: { everyMs: 24 * HOUR_MS, uses: certificateUses },
  EnvironmentCertificate: { everyMs: 12 * HOUR_MS, uses: environmentUses },
  LinkedService: { everyMs: 0, uses: linkedServiceUses },
  Workflow: { everyMs: 0, uses: workflowUses },
};

/**
 * Simulates the resources that read secrets on a schedule: Application Gateway, Front Door, App Service certificates, and
 * resources that read at each run.
 */
export class TimedReaders {
  readonly #parts: { resources: Resources; store: ArmStore; clock: CloudClock; working: WorkingValues };
  /** Time of the last read, by ID in lower case. */
  readonly #read = new Map<string, number>();

  constructor(parts: { resources: Resources; store: ArmStore; clock: CloudClock; working: WorkingValues }) {
    this.#parts = parts;
    for (const resource of parts.store.all()) this.declared(resource);
  }

  declared(resource: ArmResource): void {
    if (READERS[resource.type.noun] !== undefined) this.#take(resource, this.#parts.clock.now());
  }

  settle(): void {
    const now = this.#parts.clock.now();
    for (const [id, at] of this.#read) {
      const resource = this.#parts.store.get(id);
      if (resource === undefined) {
        this.#read.delete(id);
        continue;
      }
      const { everyMs } = READERS[resource.type.noun]!;
      const times = everyMs === 0 ? 0 : Math.floor((now - at) / everyMs);
      if (times >= 1) {
        this.#take(resource, at + everyMs);
        this.#read.set(id, at + times * everyMs);
      }
    }
  }

  /** Called when a vault secret has a new value. Resources that read at each use have it at once. */
  changed(vault: string, secret: string): void {
    for (const id of this.#read.keys()) {
      const resource = this.#parts.store.get(id);
      if (resource === undefined || READERS[resource.type.noun]!.everyMs > 0) continue;
      const uses = READERS[resource.type.noun]!.uses(resource, this.#parts.store);
      if (uses.some((one) => same(one.vault, vault) && same(one.secret, secret)))
        this.#take(resource, this.#parts.clock.now());
    }
  }

  /** Reads the secret again. If it can't be read, the previous value stays. */
  #take(resource: ArmResource, at: number): void {
    this.#read.set(resource.id.toLowerCase(), at);
    for (const { evidence, ...place } of READERS[resource.type.noun]!.uses(resource, this.#parts.store)) {
      const reading = readSecret(this.#parts, this.#principals(resource), place);
      if ("problem" in reading) continue;
      this.#parts.working.holds(resource.id, evidence, place, reading.value, at);
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
    const owner = resource.identity ? resource : (store.get(resource.id.split("/").slice(0, 9).join("/")) ?? resource);
    return allPrincipalsOf(owner.identity);
  }
}

function use(evidence: string, uri: unknown): Use[] {
  const place = typeof uri === "string" ? placeOfUri(uri) : undefined;
  return place === undefined ? [] : [{ evidence, ...place }];
}

function gatewayUses({ properties }: ArmResource): Use[] {
  const { sslCertificates = [] } = properties as {
    sslCertificates?: { name: string; properties?: { keyVaultSecretId?: string } }[];
  };
  return sslCertificates.flatMap((one) => use(`sslCertificates/${one.name}`, one.properties?.keyVaultSecretId));
}

function frontDoorUses({ properties }: ArmResource): Use[] {
  const { parameters } = properties as {
    parameters?: { secretSource?: { id?: string }; useLatestVersion?: boolean; secretVersion?: string };
  };
  const [, vault, secret] =
    /\/vaults\/([^/]+)\/(?:secrets|certificates)\/([^/]+)/i.exec(parameters?.secretSource?.id ?? "") ?? [];
  if (vault === undefined || secret === undefined) return [];
  const version = parameters?.useLatestVersion ? undefined : parameters?.secretVersion;
  return [{ evidence: "parameters.secretSource", vault, secret, ...(version && { version }) }];
}

function certificateUses({ properties }: ArmResource): Use[] {
  const { keyVaultId = "", keyVaultSecretName } = properties as { keyVaultId?: string; keyVaultSecretName?: string };
  const vault = keyVaultId.split("/").at(-1);
  return vault && keyVaultSecretName ? [{ evidence: "keyVaultSecretName", vault, secret: keyVaultSecretName }] : [];
}

function environmentUses({ properties }: ArmResource): Use[] {
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
function linkedServiceUses(resource: ArmResource, store: ArmStore): Use[] {
  const factory = resource.id.split("/").slice(0, -1).join("/");
  const found: Use[] = [];
  const walk = (value: unknown, path: string): void => {
    if (typeof value !== "object" || value === null) return;
    const { type, secretName, secretVersion, store: named } = value as FactorySecret;
    const vault = vaultOf(store.get(`${factory}/${named?.referenceName}`));
    if (type === "AzureKeyVaultSecret" && typeof secretName === "string" && vault !== undefined) {
      const version = typeof secretVersion === "string" && secretVersion !== "" ? { version: secretVersion } : {};
      found.push({ evidence: path, vault, secret: secretName, ...version });
    }
    for (const [name, inner] of Object.entries(value)) walk(inner, path === "" ? name : `${path}.${name}`);
  };
  walk(resource.properties.typeProperties, "");
  return found;
}

function vaultOf(service: ArmResource | undefined): string | undefined {
  const { baseUrl } = (service?.properties.typeProperties ?? {}) as { baseUrl?: string };
  return /^https:\/\/([^./]+)\./.exec(baseUrl ?? "")?.[1];
}

/**
 * Returns the workflow actions that get a secret through a connection to a vault:
 * `/secrets/@{encodeURIComponent('NAME')}/value`.
 */
function workflowUses({ properties }: ArmResource, store: ArmStore): Use[] {
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

const same = (a: string, b: string): boolean => a.toLowerCase() === b.toLowerCase();
