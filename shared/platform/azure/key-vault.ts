import type { Config } from "../config/config.ts";
import { loadOnce } from "../load-once.ts";
import { copyText, type Logger, type Randomness, systemRandomness } from "../runtime.ts";
import { CALL_LIMITS, type Call, type CallLimits, createSender, newCall, readAnswer } from "./calls.ts";
import { createHostLimit } from "./connections.ts";
import { type CallTarget, CloudFailure, foreignHost } from "./failure.ts";
import type { Identity } from "./identity.ts";
import {
  type Attributes,
  type CertificateAnswer,
  type CertificateEntry,
  identified,
  type KeyAnswer,
  type KeyEntry,
  keyVaultRoute,
  nameOfEntry,
  type RotationPolicyAnswer,
  type SecretEntry,
} from "./key-vault-answers.ts";
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

/** An answer as it came: to see that it is the same as another one costs less than to read it. */
export interface Answer<T> {
  text: string;
  /** @throws {CloudFailure} badResponse when it is not what the service documents. */
  read(): T;
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
  key(name: string, signal?: AbortSignal): Promise<Answer<KeyDetails>>;
  /** Undefined when the key has none. */
  rotationPolicy(name: string, signal?: AbortSignal): Promise<Answer<RotationPolicy> | undefined>;
  certificate(name: string, signal?: AbortSignal): Promise<Answer<CertificateDetails>>;
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
      const sender = loadOnce(() =>
        createSender({
          origin,
          scope: `https://${suffix}/.default`,
          identity,
          route: (path) => keyVaultRoute(path, resource),
          resource,
          hostLimit,
          log,
          randomness,
          limits: { ...CALL_LIMITS, ...limits },
        }),
      );
      return vaultClient(resource, origin, sender);
    },
  };
}

const API_VERSION = "2025-07-01";

interface Page<T> {
  value: T[];
  nextLink?: string | null;
}

/**
 * Reads by plain requests (https://learn.microsoft.com/rest/api/keyvault/), not by the SDKs' clients, whose layers are a quarter
 * of the processor time of a reading. A test holds that both read the same.
 */
function vaultClient(
  resource: string,
  origin: string,
  sender: () => Promise<Awaited<ReturnType<typeof createSender>>>,
): VaultClient {
  const callOf = (signal: AbortSignal | undefined, unreadable?: OnUnreadable): Call =>
    newCall({
      signal,
      unreadable:
        unreadable && ((entry, failure) => unreadable({ kind: "unreadable", name: nameOfEntry(entry), failure })),
    });

  async function get<T, D>(path: string, signal: AbortSignal | undefined, said: (answer: T) => D): Promise<Answer<D>> {
    const send = await sender();
    const text = (await send({ url: `${origin}${path}?api-version=${API_VERSION}`, call: callOf(signal) })) as string;
    return { text, read: () => said(readAnswer(text, keyVaultRoute(path, resource)!) as T) };
  }

  async function* list<T>(path: string, call: Call): AsyncGenerator<T[], void> {
    const send = await sender();
    for (let url: string | null | undefined = `${origin}${path}?api-version=${API_VERSION}`; url; ) {
      const page = (await send({ url, call })) as Page<T>;
      yield page.value;
      url = page.nextLink;
    }
  }

  return {
    async *secrets(signal, unreadable) {
      for await (const page of list<SecretEntry>("/secrets", callOf(signal, unreadable))) {
        yield page.map((secret) => ({
          kind: "secret",
          ...listedEntry(secret.id, secret),
          ...present({ contentType: secret.contentType }),
        }));
      }
    },

    async *keys(signal, unreadable) {
      for await (const page of list<KeyEntry>("/keys", callOf(signal, unreadable))) {
        yield page.map((key) => ({ kind: "key", ...listedEntry(key.kid, key) }));
      }
    },

    async *certificates(signal, unreadable) {
      for await (const page of list<CertificateEntry>("/certificates", callOf(signal, unreadable))) {
        yield page.map((certificate) => ({
          kind: "certificate",
          ...listedEntry(certificate.id, certificate),
          ...present({ thumbprint: hex(certificate.x5t) }),
        }));
      }
    },

    key: (name, signal) =>
      get(`/keys/${encodeURIComponent(name)}`, signal, ({ key }: KeyAnswer) => ({
        version: identified(key.kid).version,
        keyType: key.kty,
        operations: key.key_ops ?? [],
        ...present({ keySize: modulusBits(key.n), keyCurve: key.crv }),
      })),

    async rotationPolicy(name, signal) {
      try {
        return await get(`/keys/${encodeURIComponent(name)}/rotationpolicy`, signal, rotationPolicyOf);
      } catch (error) {
        if (error instanceof CloudFailure && error.code === "notFound") return undefined;
        throw error;
      }
    },

    certificate: (name, signal) =>
      get(`/certificates/${encodeURIComponent(name)}`, signal, (certificate: CertificateAnswer) =>
        certificateDetails(certificate, { operation: "read a certificate", resource }),
      ),

    async *versions(kind, name, signal) {
      const path = `/${kind}s/${encodeURIComponent(name)}/versions`;
      for await (const page of list<SecretEntry | KeyEntry | CertificateEntry>(path, callOf(signal)))
        yield page.map((one) => {
          const id = "kid" in one ? one.kid : one.id;
          return { ...listedEntry(id, one), version: identified(id).version };
        });
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
    name: copyText(properties.name ?? ""),
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

/** As `listed`, of an entry as the service gives it. */
function listedEntry(
  id: string,
  { attributes, tags, ...entry }: { attributes?: Attributes; tags?: object | null; managed?: boolean | null },
): Listed {
  return {
    name: copyText(identified(id).name),
    enabled: attributes?.enabled ?? true,
    ...present({
      notBefore: wholeSeconds(attributes?.nbf),
      expiresOn: wholeSeconds(attributes?.exp),
      createdOn: wholeSeconds(attributes?.created),
      updatedOn: wholeSeconds(attributes?.updated),
    }),
    tags: textTags(tags),
    managed: entry.managed ?? false,
  };
}

function rotationPolicyOf(policy: RotationPolicyAnswer): RotationPolicy {
  const lifetimeActions = (policy.lifetimeActions ?? []).map(({ action, trigger }) => ({
    // The service may write it in any case.
    action: action.type.toLowerCase() === "rotate" ? ("Rotate" as const) : ("Notify" as const),
    ...present({ timeAfterCreate: trigger?.timeAfterCreate, timeBeforeExpiry: trigger?.timeBeforeExpiry }),
  }));
  return { ...present({ expiresIn: policy.attributes?.expiryTime }), lifetimeActions };
}

function certificateDetails(certificate: CertificateAnswer, target: CallTarget): CertificateDetails {
  const { policy, attributes } = certificate;
  const { kty: keyType, key_size: keySize, crv: keyCurve } = policy?.key_props ?? {};
  const { subject, sans, validity_months: validityMonths } = policy?.x509_props ?? {};
  // Absent while the certificate authority has not answered yet; then the policy says what will be.
  const keyIsSaid = (keyType ?? undefined) !== undefined && (keySize ?? keyCurve ?? undefined) !== undefined;
  const x509 = certificate.cer ? readX509(Buffer.from(certificate.cer, "base64"), target, !keyIsSaid) : undefined;
  const lifetimeActions = (policy?.lifetime_actions ?? []).flatMap(({ action, trigger }) => {
    const type = action?.action_type;
    if (type !== "AutoRenew" && type !== "EmailContacts") return [];
    const { lifetime_percentage: lifetimePercentage, days_before_expiry: daysBeforeExpiry } = trigger ?? {};
    return [{ action: type, ...present({ lifetimePercentage, daysBeforeExpiry }) } as const];
  });
  return {
    version: identified(certificate.id).version,
    subjectAlternativeNames: x509?.subjectAlternativeNames ?? [
      ...(sans?.dns_names ?? []),
      ...(sans?.emails ?? []),
      ...(sans?.upns ?? []),
    ],
    autoRenew: lifetimeActions.some(({ action }) => action === "AutoRenew"),
    lifetimeActions,
    ...present({
      subject: x509?.subject ?? subject,
      issuer: x509?.issuer,
      issuerName: policy?.issuer?.name,
      thumbprint: hex(certificate.x5t),
      validityMonths: validityMonths ?? x509?.validityMonths,
      keyType: keyType ?? x509?.keyType,
      keySize: keySize ?? x509?.keySize,
      keyCurve,
      notBefore: wholeSeconds(attributes?.nbf),
      expiresOn: wholeSeconds(attributes?.exp),
    }),
  };
}

/** The last second of the year 9999: later ones have no ISO 8601 form of four digits. */
const LATEST = 253_402_300_799;

const wholeSeconds = (seconds: number | undefined | null): number | undefined =>
  seconds === undefined || seconds === null ? undefined : Math.min(Math.floor(seconds), LATEST);

const unixSeconds = (date: Date | undefined | null): number | undefined =>
  date ? wholeSeconds(date.getTime() / 1000) : undefined;

/** @param base64url - Of bytes. */
const hex = (base64url: string | undefined | null): string | undefined =>
  base64url === undefined || base64url === null
    ? undefined
    : Buffer.from(base64url, "base64url").toString("hex").toUpperCase();

/** @param base64url - Of a number, its highest byte first. */
function modulusBits(base64url: string | undefined | null): number | undefined {
  if (base64url === undefined || base64url === null) return undefined;
  const modulus = Buffer.from(base64url, "base64url");
  const first = modulus.findIndex((byte) => byte !== 0);
  return first === -1 ? 0 : (modulus.length - first) * 8 - (Math.clz32(modulus[first]!) - 24);
}

function textTags(tags: object | undefined | null): Record<string, string> {
  return Object.fromEntries(
    Object.entries(tags ?? {}).filter((entry): entry is [string, string] => typeof entry[1] === "string"),
  );
}

/** Without the members that are undefined, or null as the services sometimes write it. */
export function present<T extends object>(members: T): { [K in keyof T]?: NonNullable<T[K]> } {
  const kept: { [K in keyof T]?: NonNullable<T[K]> } = {};
  for (const name in members) {
    const value = members[name];
    if (value !== undefined && value !== null) kept[name] = value;
  }
  return kept;
}
