import type { TokenCredential } from "@azure/core-auth";
import type { Pipeline } from "@azure/core-rest-pipeline";
import type { KeyVaultCertificateWithPolicy } from "@azure/keyvault-certificates";
import type { Config } from "../config/config.ts";
import { detached, type Logger, type Randomness, systemRandomness } from "../runtime.ts";
import {
  CALL_LIMITS,
  type CallLimits,
  type CallScope,
  clientOptions,
  inCall,
  leanPipeline,
  pagesInCall,
} from "./calls.ts";
import { createHostLimit } from "./connections.ts";
import { type CallTarget, CloudFailure, foreignHost } from "./failure.ts";
import type { Identity } from "./identity.ts";
import { keyVaultRoute, nameOfEntry } from "./key-vault-answers.ts";
import { readX509 } from "./x509.ts";

/** Instants are whole seconds since 1970, as Key Vault keeps them. */
interface Listed {
  name: string;
  enabled: boolean;
  notBefore?: number;
  expiresOn?: number;
  createdOn?: number;
  updatedOn?: number;
  tags: Record<string, string>;
  /** It only backs a certificate of the same name. */
  managed: boolean;
}

export interface ListedSecret extends Listed {
  kind: "secret";
  contentType?: string;
}

export interface ListedKey extends Listed {
  kind: "key";
}

export interface ListedCertificate extends Listed {
  kind: "certificate";
  /** SHA-1 of the certificate, upper-case hexadecimal. */
  thumbprint?: string;
}

/** One version of an asset; what it holds is not read. */
export interface ListedVersion extends Listed {
  version: string;
}

/** An entry of a list that is not what the service documents. */
export interface UnreadableEntry {
  kind: "unreadable";
  /** Undefined when not even that can be read: then it may be any of the assets that the list does not name. */
  name: string | undefined;
  failure: CloudFailure;
}

export type ListedAsset = ListedSecret | ListedKey | ListedCertificate | UnreadableEntry;

/** Gets the unreadable entries of a list. */
export type OnUnreadable = (entry: UnreadableEntry) => void;

export interface KeyDetails {
  version: string;
  /** `RSA`, `RSA-HSM`, `EC`, `EC-HSM`, `oct` or `oct-HSM`. */
  keyType: string;
  /** Bits of the modulus; RSA only. */
  keySize?: number;
  /** Such as `P-256`; EC only. */
  keyCurve?: string;
  operations: string[];
}

/** Durations are ISO 8601, such as `P90D`. */
export interface RotationPolicy {
  expiresIn?: string;
  lifetimeActions: { action: "Rotate" | "Notify"; timeAfterCreate?: string; timeBeforeExpiry?: string }[];
}

export interface CertificateDetails {
  version: string;
  /** Distinguished name, such as `CN=www.example.com, O=Example`. */
  subject?: string;
  /** Distinguished name of who signed it. */
  issuer?: string;
  /** The policy's issuer: `Self`, `Unknown`, or the name of a certificate authority set up in the vault. */
  issuerName?: string;
  subjectAlternativeNames: string[];
  /** SHA-1 of the certificate, upper-case hexadecimal. */
  thumbprint?: string;
  /** The policy's validity, else that of the certificate rounded to months. */
  validityMonths?: number;
  keyType?: string;
  /** Bits. */
  keySize?: number;
  keyCurve?: string;
  /** The policy renews it, rather than only telling its contacts. */
  autoRenew: boolean;
  lifetimeActions: { action: "AutoRenew" | "EmailContacts"; lifetimePercentage?: number; daysBeforeExpiry?: number }[];
  notBefore?: number;
  expiresOn?: number;
}

/**
 * Reads one vault; no method reads a secret's value. Lists come in the service's pages of up to 25. An entry that is not
 * what the service documents goes to `unreadable`; without that function it fails the list.
 * Every method throws `CloudFailure`; `timedOut` once its signal is aborted.
 */
export interface VaultClient {
  secrets(signal?: AbortSignal, unreadable?: OnUnreadable): AsyncGenerator<ListedSecret[]>;
  keys(signal?: AbortSignal, unreadable?: OnUnreadable): AsyncGenerator<ListedKey[]>;
  certificates(signal?: AbortSignal, unreadable?: OnUnreadable): AsyncGenerator<ListedCertificate[]>;
  key(name: string, signal?: AbortSignal): Promise<KeyDetails>;
  /** Undefined when the key has none. */
  rotationPolicy(name: string, signal?: AbortSignal): Promise<RotationPolicy | undefined>;
  certificate(name: string, signal?: AbortSignal): Promise<CertificateDetails>;
  /** All versions of one asset, in no order. */
  versions(kind: "secret" | "key" | "certificate", name: string, signal?: AbortSignal): AsyncGenerator<ListedVersion[]>;
}

export interface KeyVaults {
  /**
   * One client serves all calls while a vault is read: they share its connections, eight at the most.
   * @throws {CloudFailure} foreignHost when the address is not https, or not under the cloud's Key Vault domain.
   */
  open(vault: { name: string; vaultUri: string }): VaultClient;
}

export interface CloudServices {
  config: Config;
  identity: Identity;
  log: Logger;
  /** For the jitter of retries. */
  randomness?: Randomness;
  limits?: Partial<CallLimits>;
}

export function createKeyVaults({
  config,
  identity,
  log,
  randomness = systemRandomness(),
  limits,
}: CloudServices): KeyVaults {
  const suffix = config.cloud.keyVaultSuffix;
  return {
    open({ name, vaultUri }) {
      const resource = `key vault ${name}`;
      const origin = originOf(vaultUri, suffix, { operation: "open the vault", resource });
      const hostLimit = createHostLimit();
      const connect: Connect = async () => [
        origin,
        await identity.credential(),
        {
          ...(await clientOptions({
            origin,
            scope: `https://${suffix}/.default`,
            identity,
            route: (path) => keyVaultRoute(path, resource),
            resource,
            hostLimit,
            log,
            randomness,
            limits: { ...CALL_LIMITS, ...limits },
          })),
          // The SDK hands it to its own client, where it is documented; a test holds that it is used.
          pipeline: await leanPipeline(),
        },
      ];
      return vaultClient(resource, connect);
    },
  };
}

type Connect = () => Promise<
  [
    url: string,
    credential: TokenCredential,
    options: Awaited<ReturnType<typeof clientOptions>> & { pipeline: Pipeline },
  ]
>;

/** What `make` answers, made at the first call; one that failed is made again. */
function once<T>(make: () => Promise<T>): () => Promise<T> {
  let made: Promise<T> | undefined;
  return () => {
    made ??= make().catch((error: unknown) => {
      made = undefined;
      throw error;
    });
    return made;
  };
}

/** One SDK client of each kind serves all calls. */
function vaultClient(resource: string, connect: Connect): VaultClient {
  const keys = once(async () => {
    const { KeyClient } = await import("@azure/keyvault-keys");
    return new KeyClient(...(await connect()));
  });
  const certificates = once(async () => {
    const { CertificateClient } = await import("@azure/keyvault-certificates");
    return new CertificateClient(...(await connect()));
  });
  const secrets = once(async () => {
    const { SecretClient } = await import("@azure/keyvault-secrets");
    return new SecretClient(...(await connect()));
  });
  const scopeOf = (signal: AbortSignal | undefined, unreadable: OnUnreadable | undefined): CallScope => ({
    signal,
    unreadable:
      unreadable && ((entry, failure) => unreadable({ kind: "unreadable", name: nameOfEntry(entry), failure })),
  });

  return {
    async *secrets(signal, unreadable) {
      const pages = (await secrets()).listPropertiesOfSecrets().byPage();
      for await (const page of pagesInCall(scopeOf(signal, unreadable), pages)) {
        yield page.map((secret) => ({
          kind: "secret",
          ...listed(secret),
          ...present({ contentType: secret.contentType }),
        }));
      }
    },

    async *keys(signal, unreadable) {
      const pages = (await keys()).listPropertiesOfKeys().byPage();
      for await (const page of pagesInCall(scopeOf(signal, unreadable), pages)) {
        yield page.map((key) => ({ kind: "key", ...listed(key) }));
      }
    },

    async *certificates(signal, unreadable) {
      const pages = (await certificates()).listPropertiesOfCertificates().byPage();
      for await (const page of pagesInCall(scopeOf(signal, unreadable), pages)) {
        yield page.map((certificate) => ({
          kind: "certificate",
          ...listed(certificate),
          ...present({ thumbprint: hex(certificate.x509Thumbprint) }),
        }));
      }
    },

    async key(name, signal) {
      const client = await keys();
      const { key, keyType, keyOperations, properties } = await inCall({ signal }, () => client.getKey(name));
      return {
        version: properties.version ?? "",
        keyType: keyType ?? "",
        operations: keyOperations ?? [],
        ...present({ keySize: modulusBits(key?.n), keyCurve: key?.crv }),
      };
    },

    async rotationPolicy(name, signal) {
      const client = await keys();
      try {
        const policy = await inCall({ signal }, () => client.getKeyRotationPolicy(name));
        const lifetimeActions = (policy.lifetimeActions ?? []).map(({ action, timeAfterCreate, timeBeforeExpiry }) => ({
          action: action as "Rotate" | "Notify",
          ...present({ timeAfterCreate, timeBeforeExpiry }),
        }));
        return { ...present({ expiresIn: policy.expiresIn }), lifetimeActions };
      } catch (error) {
        if (error instanceof CloudFailure && error.code === "notFound") return undefined;
        throw error;
      }
    },

    async certificate(name, signal) {
      const client = await certificates();
      const certificate = await inCall({ signal }, () => client.getCertificate(name));
      return certificateDetails(certificate, { operation: "read a certificate", resource });
    },

    async *versions(kind, name, signal) {
      const pages =
        kind === "secret"
          ? (await secrets()).listPropertiesOfSecretVersions(name)
          : kind === "key"
            ? (await keys()).listPropertiesOfKeyVersions(name)
            : (await certificates()).listPropertiesOfCertificateVersions(name);
      for await (const page of pagesInCall({ signal }, pages.byPage()))
        yield page.map((one) => ({ ...listed(one), version: one.version ?? "" }));
    },
  };
}

/** @throws {CloudFailure} foreignHost when the address is not https, or not under `suffix`. */
export function originOf(vaultUri: string, suffix: string, target: CallTarget): string {
  const url = URL.canParse(vaultUri) ? new URL(vaultUri) : undefined;
  if (url?.protocol !== "https:" || !url.hostname.endsWith(`.${suffix}`) || url.username || url.password) {
    throw foreignHost(target, url ? url.origin : "no address at all");
  }
  return url.origin;
}

interface SdkProperties {
  name?: string;
  enabled?: boolean;
  notBefore?: Date;
  expiresOn?: Date;
  createdOn?: Date;
  updatedOn?: Date;
  tags?: Record<string, unknown>;
  managed?: boolean;
}

export function listed(properties: SdkProperties): Listed {
  return {
    name: detached(properties.name ?? ""),
    enabled: properties.enabled ?? true,
    ...present({
      notBefore: unixSeconds(properties.notBefore),
      expiresOn: unixSeconds(properties.expiresOn),
      createdOn: unixSeconds(properties.createdOn),
      updatedOn: unixSeconds(properties.updatedOn),
    }),
    tags: textTags(properties.tags),
    managed: properties.managed ?? false,
  };
}

function certificateDetails(certificate: KeyVaultCertificateWithPolicy, target: CallTarget): CertificateDetails {
  const { properties, policy } = certificate;
  // Absent while the certificate authority has not answered yet; then the policy says what will be.
  const keyIsSaid =
    policy?.keyType !== undefined && (policy.keySize !== undefined || policy.keyCurveName !== undefined);
  const x509 = certificate.cer?.length ? readX509(certificate.cer, target, !keyIsSaid) : undefined;
  const wanted = policy?.subjectAlternativeNames;
  const lifetimeActions = (policy?.lifetimeActions ?? []).flatMap(({ action, lifetimePercentage, daysBeforeExpiry }) =>
    action === "AutoRenew" || action === "EmailContacts"
      ? [{ action, ...present({ lifetimePercentage, daysBeforeExpiry }) } as const]
      : [],
  );
  return {
    version: properties.version ?? "",
    subjectAlternativeNames: x509?.subjectAlternativeNames ?? [
      ...(wanted?.dnsNames ?? []),
      ...(wanted?.emails ?? []),
      ...(wanted?.userPrincipalNames ?? []),
    ],
    autoRenew: lifetimeActions.some(({ action }) => action === "AutoRenew"),
    lifetimeActions,
    ...present({
      subject: x509?.subject ?? policy?.subject,
      issuer: x509?.issuer,
      issuerName: policy?.issuerName,
      thumbprint: hex(properties.x509Thumbprint),
      validityMonths: policy?.validityInMonths ?? x509?.validityMonths,
      keyType: policy?.keyType ?? x509?.keyType,
      keySize: policy?.keySize ?? x509?.keySize,
      keyCurve: policy?.keyCurveName,
      notBefore: unixSeconds(properties.notBefore),
      expiresOn: unixSeconds(properties.expiresOn),
    }),
  };
}

/** The last second of the year 9999: later ones have no ISO 8601 form of four digits. */
const LATEST = 253_402_300_799;

function unixSeconds(date: Date | undefined | null): number | undefined {
  return date ? Math.min(Math.floor(date.getTime() / 1000), LATEST) : undefined;
}

function hex(bytes: Uint8Array | undefined | null): string | undefined {
  return bytes ? Buffer.from(bytes).toString("hex").toUpperCase() : undefined;
}

function modulusBits(modulus: Uint8Array | undefined | null): number | undefined {
  if (!modulus) return undefined;
  const first = modulus.findIndex((byte) => byte !== 0);
  return first === -1 ? 0 : (modulus.length - first) * 8 - (Math.clz32(modulus[first]!) - 24);
}

function textTags(tags: Record<string, unknown> | undefined | null): Record<string, string> {
  return Object.fromEntries(
    Object.entries(tags ?? {}).filter((entry): entry is [string, string] => typeof entry[1] === "string"),
  );
}

/** Without the members that are undefined, or null as the services sometimes write it. */
export function present<T extends object>(members: T): { [K in keyof T]?: NonNullable<T[K]> } {
  return Object.fromEntries(Object.entries(members).filter(([, value]) => value !== undefined && value !== null)) as {
    [K in keyof T]?: NonNullable<T[K]>;
  };
}
