import type {
  CertificateClient,
  CertificateProperties,
  KeyVaultCertificateWithPolicy,
} from "@azure/keyvault-certificates";
import type { KeyClient, KeyProperties, KeyRotationPolicy, KeyVaultKey } from "@azure/keyvault-keys";
import type { SecretClient, SecretProperties } from "@azure/keyvault-secrets";
import type * as z from "zod";
import type { Config } from "../config/config.ts";
import { loadOnce } from "../load-once.ts";
import { copyText, type Logger, type Randomness, systemRandomness } from "../runtime.ts";
import { LATEST_TIME } from "../time.ts";
import { CALL_LIMITS, type CallLimits, clientOptions, undocumented } from "./calls.ts";
import { createVaultConnections } from "./connections.ts";
import { asCloudFailure, type CallTarget, CloudFailure, foreignHost, malformedAnswer } from "./failure.ts";
import type { Identity } from "./identity.ts";
import {
  certificateSchema,
  keySchema,
  keyVaultRoute,
  type Operation,
  propertiesSchemas,
  rotationPolicySchema,
  targetOf,
} from "./key-vault-answers.ts";
import { keyVaultPace, type PacedVault } from "./key-vault-pace.ts";
import type { X509Facts } from "./x509.ts";

/**
 * Properties that listed secrets, keys and certificates have in common. Times are whole seconds since 1970, as Key Vault stores
 * them.
 */
interface Listed {
  name: string;
  enabled: boolean;
  notBefore?: number;
  expiresOn?: number;
  createdOn?: number;
  updatedOn?: number;
  tags: Record<string, string>;
  /** True if the object belongs to a certificate of the same name. */
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
  /** SHA-1 hash of the certificate, upper-case hexadecimal. */
  thumbprint?: string;
}

/** One version of an asset, without its value. */
export interface ListedVersion extends Listed {
  version: string;
}

export type ListedAsset = ListedSecret | ListedKey | ListedCertificate;

export interface KeyDetails {
  version: string;
  /** `RSA`, `RSA-HSM`, `EC`, `EC-HSM`, `oct` or `oct-HSM`. */
  keyType: string;
  /** Bits of the modulus, for RSA keys. */
  keySize?: number;
  /** Curve, such as `P-256`, for EC keys. */
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
  /** Distinguished name of the issuer. */
  issuer?: string;
  /** The policy's issuer: `Self`, `Unknown`, or the name of a certificate authority that is configured in the vault. */
  issuerName?: string;
  subjectAlternativeNames: string[];
  /** SHA-1 hash of the certificate, upper-case hexadecimal. */
  thumbprint?: string;
  /** Validity of the policy, or else of the certificate, rounded to months. */
  validityMonths?: number;
  /** Validity in months that the policy sets for new certificates. */
  orderedMonths?: number;
  /** Whether the policy allows to read the private key. */
  exportable?: boolean;
  /** Facts of the certificate itself. Absent until the authority has issued it. */
  issued?: Pick<
    X509Facts,
    "serialNumber" | "authorityKeyId" | "hasTimestamps" | "signatureAlgorithm" | "notBefore" | "notAfter"
  >;
  keyType?: string;
  /** Key size in bits. */
  keySize?: number;
  keyCurve?: string;
  /** True if the policy renews the certificate. False if it only notifies contacts. */
  autoRenew: boolean;
  lifetimeActions: { action: "AutoRenew" | "EmailContacts"; lifetimePercentage?: number; daysBeforeExpiry?: number }[];
  notBefore?: number;
  expiresOn?: number;
}

/** A response with its text. Comparing the text with that of an earlier scan is cheaper than parsing the response. */
export interface Answer<T> {
  text: string;
  /** Parses the response. @throws {CloudFailure} badResponse if it does not match the service's documentation. */
  read(): T;
}

/**
 * Reads the secrets, keys and certificates of one vault for scans. No method reads a secret's value. Lists are returned in the
 * service's pages of up to 25 entries. An entry that does not match the service's documentation fails the list.
 * The methods throw `CloudFailure`, with the code `timedOut` when their signal is aborted.
 */
export interface VaultClient {
  secrets(signal?: AbortSignal): AsyncGenerator<ListedSecret[]>;
  keys(signal?: AbortSignal): AsyncGenerator<ListedKey[]>;
  certificates(signal?: AbortSignal): AsyncGenerator<ListedCertificate[]>;
  key(name: string, signal?: AbortSignal): Promise<Answer<KeyDetails>>;
  /** Returns undefined if the key has no rotation policy. */
  rotationPolicy(name: string, signal?: AbortSignal): Promise<Answer<RotationPolicy> | undefined>;
  certificate(name: string, signal?: AbortSignal): Promise<Answer<CertificateDetails>>;
  /** Lists all versions of one secret, key or certificate, in no defined order. */
  versions(kind: "secret" | "key" | "certificate", name: string, signal?: AbortSignal): AsyncGenerator<ListedVersion[]>;
  /** Closes the connections to the vault. Without this call, idle connections are closed after some seconds. */
  close(): Promise<void>;
}

/** Opens clients of key vaults for scans. */
export interface KeyVaults {
  /**
   * Returns a client for one vault. Its calls share at most eight connections.
   * @throws {CloudFailure} foreignHost if the address is not https, or not under the cloud's Key Vault domain.
   */
  open(vault: { name: string; vaultUri: string } & Omit<PacedVault, "origin">): VaultClient;
}

/** Services that each client of Azure needs. */
export interface CloudServices {
  config: Config;
  identity: Identity;
  log: Logger;
  /** Used for the jitter of retries. */
  randomness?: Randomness;
  limits?: Partial<CallLimits>;
}

export function createKeyVaults(services: CloudServices): KeyVaults {
  const suffix = services.config.cloud.keyVaultSuffix;
  return {
    open(vault) {
      const resource = `key vault ${vault.name}`;
      const origin = originOf(vault.vaultUri, suffix, { operation: "open the vault", resource });
      return createVaultClient(resource, { ...vault, origin }, services);
    },
  };
}

const API_VERSION = "2025-07-01";

interface Pages<T> {
  byPage(): AsyncIterableIterator<T[]>;
}

/** Options of an SDK call for one object. */
interface CallOptions {
  abortSignal?: AbortSignal;
  onResponse(response: { bodyAsText?: string | null }): void;
}

function createVaultClient(resource: string, vault: PacedVault, services: CloudServices): VaultClient {
  const { config, identity, log, randomness = systemRandomness(), limits } = services;
  const { origin } = vault;
  const connections = createVaultConnections();
  const pace = keyVaultPace.vault(vault);

  /** Creates the arguments of an SDK client. Each client needs its own, because the SDKs change the options. */
  const clientArguments = async (signal?: AbortSignal) =>
    [
      origin,
      await identity.credential(),
      {
        ...(await clientOptions({
          origin,
          scope: `https://${config.cloud.keyVaultSuffix}/.default`,
          identity,
          route: (path) => keyVaultRoute(path, resource),
          resource,
          signal,
          connections,
          pace,
          log,
          randomness,
          limits: { ...CALL_LIMITS, ...limits },
        })),
        serviceVersion: API_VERSION,
      },
    ] as const;
  const createSecretClient = async (signal?: AbortSignal): Promise<SecretClient> =>
    new (await import("@azure/keyvault-secrets")).SecretClient(...(await clientArguments(signal)));
  const createKeyClient = async (signal?: AbortSignal): Promise<KeyClient> =>
    new (await import("@azure/keyvault-keys")).KeyClient(...(await clientArguments(signal)));
  const createCertificateClient = async (signal?: AbortSignal): Promise<CertificateClient> =>
    new (await import("@azure/keyvault-certificates")).CertificateClient(...(await clientArguments(signal)));
  // The calls for one object share these clients, because each call has its own signal. Each list needs its own client.
  const keyClient = loadOnce(() => createKeyClient());
  const certificateClient = loadOnce(() => createCertificateClient());

  async function* list<T extends SdkProperties, L>(
    kind: keyof typeof propertiesSchemas,
    operation: Operation,
    pages: Promise<Pages<T>>,
    mapEntry: (properties: T) => L,
  ): AsyncGenerator<L[], void> {
    const target = targetOf(operation, resource);
    const iterator = (await pages).byPage();
    for (;;) {
      const { done, value } = await parsedByClient(target, () => iterator.next());
      if (done) return;
      yield value.map((properties) => mapEntry(requireSchema(propertiesSchemas[kind], properties, target)));
    }
  }

  async function get<T, D>(
    operation: Operation,
    call: (options: CallOptions) => Promise<T>,
    mapAnswer: (answer: T, target: CallTarget) => D,
    signal?: AbortSignal,
  ): Promise<Answer<D>> {
    const target = targetOf(operation, resource);
    let text = "";
    const options: CallOptions = {
      ...present({ abortSignal: signal }),
      onResponse: ({ bodyAsText }) => {
        text = bodyAsText ?? "";
      },
    };
    const answer = await parsedByClient(target, () => call(options));
    return { text, read: () => mapAnswer(answer, target) };
  }

  return {
    secrets(signal) {
      const pages = createSecretClient(signal).then((client) => client.listPropertiesOfSecrets());
      return list<SecretProperties, ListedSecret>("secret", "list secrets", pages, (properties) => ({
        kind: "secret",
        ...listed(properties),
        ...present({ contentType: properties.contentType }),
      }));
    },

    keys(signal) {
      const pages = createKeyClient(signal).then((client) => client.listPropertiesOfKeys());
      return list<KeyProperties, ListedKey>("key", "list keys", pages, (properties) => ({
        kind: "key",
        ...listed(properties),
      }));
    },

    certificates(signal) {
      const pages = createCertificateClient(signal).then((client) => client.listPropertiesOfCertificates());
      return list<CertificateProperties, ListedCertificate>(
        "certificate",
        "list certificates",
        pages,
        (properties) => ({
          kind: "certificate",
          ...listed(properties),
          ...present({ thumbprint: hex(properties.x509Thumbprint) }),
        }),
      );
    },

    key: (name, signal) =>
      get("read a key", async (options) => (await keyClient()).getKey(name, options), keyDetails, signal),

    async rotationPolicy(name, signal) {
      const call = async (options: CallOptions) => (await keyClient()).getKeyRotationPolicy(name, options);
      try {
        return await get("read a key's rotation policy", call, rotationPolicy, signal);
      } catch (error) {
        if (error instanceof CloudFailure && error.code === "notFound") return undefined;
        throw error;
      }
    },

    async certificate(name, signal) {
      const call = async (options: CallOptions) => (await certificateClient()).getCertificate(name, options);
      // Loaded with the first certificate, because the parser is not needed at the start of a process.
      const { readX509 } = await import("./x509.ts");
      const mapAnswer = (answer: KeyVaultCertificateWithPolicy, target: CallTarget) =>
        certificateDetails(answer, target, readX509);
      return get("read a certificate", call, mapAnswer, signal);
    },

    versions(kind, name, signal) {
      const pages: Promise<Pages<SdkProperties>> =
        kind === "secret"
          ? createSecretClient(signal).then((client) => client.listPropertiesOfSecretVersions(name))
          : kind === "key"
            ? createKeyClient(signal).then((client) => client.listPropertiesOfKeyVersions(name))
            : createCertificateClient(signal).then((client) => client.listPropertiesOfCertificateVersions(name));
      return list(kind, `list versions of a ${kind}`, pages, (properties) => ({
        ...listed(properties),
        version: properties.version ?? "",
      }));
    },

    close: () => connections.close(),
  };
}

/**
 * Runs a call of an SDK client and returns its result.
 * @throws {CloudFailure} the failure of the call, or badResponse if the client can't parse the response.
 */
export async function parsedByClient<T>(target: CallTarget, call: () => Promise<T>): Promise<T> {
  try {
    return await call();
  } catch (error) {
    // An error before the parsing is a `CloudFailure` of calls.ts or an abort. Any other error comes from the client's parser.
    const isCallFailure = error instanceof CloudFailure || (error instanceof Error && error.name === "AbortError");
    throw isCallFailure ? asCloudFailure(error, target) : malformedAnswer(target, "the client can't parse the answer");
  }
}

/**
 * Returns the value that an SDK client parsed, after a check of its members. The clients copy most members without a check.
 * @throws {CloudFailure} badResponse if a member does not match the schema.
 */
export function requireSchema<T>(schema: z.ZodType, value: T, target: CallTarget): T {
  const { error } = schema.safeParse(value);
  if (error) throw undocumented(target, error);
  return value;
}

/**
 * Returns the origin of a vault's address.
 * @throws {CloudFailure} foreignHost if the address is not https, or not under `suffix`.
 */
export function originOf(vaultUri: string, suffix: string, target: CallTarget): string {
  const url = URL.canParse(vaultUri) ? new URL(vaultUri) : undefined;
  if (url?.protocol !== "https:" || !url.hostname.endsWith(`.${suffix}`) || url.username || url.password) {
    throw foreignHost(target, url ? url.origin : "no valid URL");
  }
  return url.origin;
}

/** The properties that the SDK clients have in common. Times are `Date`, and the number 0 for the first second of 1970. */
interface SdkProperties {
  name?: string;
  version?: string;
  enabled?: boolean;
  notBefore?: Date;
  expiresOn?: Date;
  createdOn?: Date;
  updatedOn?: Date;
  tags?: Record<string, unknown>;
  managed?: boolean;
}

/** Converts the properties of a listed object from the form of the SDK clients. */
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

function keyDetails(answer: KeyVaultKey, target: CallTarget): KeyDetails {
  const { key, keyType, keyOperations, properties } = requireSchema(keySchema, answer, target);
  return {
    version: properties.version ?? "",
    keyType: keyType ?? "",
    operations: keyOperations ?? [],
    ...present({ keySize: modulusBits(key?.n), keyCurve: key?.crv }),
  };
}

export function rotationPolicy(answer: KeyRotationPolicy, target: CallTarget): RotationPolicy {
  const { expiresIn, lifetimeActions } = requireSchema(rotationPolicySchema, answer, target);
  return {
    ...present({ expiresIn }),
    lifetimeActions: (lifetimeActions ?? []).map(({ action, timeAfterCreate, timeBeforeExpiry }) => ({
      action,
      ...present({ timeAfterCreate, timeBeforeExpiry }),
    })),
  };
}

function certificateDetails(
  answer: KeyVaultCertificateWithPolicy,
  target: CallTarget,
  readX509: typeof import("./x509.ts").readX509,
): CertificateDetails {
  const { cer, policy, properties } = requireSchema(certificateSchema, answer, target);
  const { keyType, keySize, keyCurveName, subject, validityInMonths, issuerName, exportable } = policy ?? {};
  const { dnsNames, emails, userPrincipalNames } = policy?.subjectAlternativeNames ?? {};
  // Until the certificate authority has issued the certificate, there is only the policy, which describes the future
  // certificate. Reading the key of a certificate takes time, so it is read only if the policy does not say its type and size
  // or curve.
  const policyNamesKey = (keyType ?? undefined) !== undefined && (keySize ?? keyCurveName ?? undefined) !== undefined;
  const x509 = cer ? readX509(Buffer.from(cer), target, !policyNamesKey) : undefined;
  const lifetimeActions = (policy?.lifetimeActions ?? []).flatMap(({ action, lifetimePercentage, daysBeforeExpiry }) =>
    action === "AutoRenew" || action === "EmailContacts"
      ? [{ action, ...present({ lifetimePercentage, daysBeforeExpiry }) } as const]
      : [],
  );
  return {
    version: properties.version ?? "",
    subjectAlternativeNames: x509?.subjectAlternativeNames ?? [
      ...(dnsNames ?? []),
      ...(emails ?? []),
      ...(userPrincipalNames ?? []),
    ],
    autoRenew: lifetimeActions.some(({ action }) => action === "AutoRenew"),
    lifetimeActions,
    ...present({
      subject: x509?.subject ?? subject,
      issuer: x509?.issuer,
      issuerName,
      thumbprint: hex(properties.x509Thumbprint),
      validityMonths: validityInMonths ?? x509?.validityMonths,
      orderedMonths: validityInMonths,
      exportable,
      issued: x509 && {
        serialNumber: x509.serialNumber,
        ...(x509.authorityKeyId !== undefined && { authorityKeyId: x509.authorityKeyId }),
        hasTimestamps: x509.hasTimestamps,
        ...(x509.signatureAlgorithm !== undefined && { signatureAlgorithm: x509.signatureAlgorithm }),
        ...(x509.notBefore !== undefined && { notBefore: x509.notBefore }),
        ...(x509.notAfter !== undefined && { notAfter: x509.notAfter }),
      },
      keyType: keyType ?? x509?.keyType,
      keySize: keySize ?? x509?.keySize,
      keyCurve: keyCurveName,
      notBefore: unixSeconds(properties.notBefore),
      expiresOn: unixSeconds(properties.expiresOn),
    }),
  };
}

const unixSeconds = (date: Date | undefined | null): number | undefined =>
  date === undefined || date === null ? undefined : Math.min(Math.floor(Number(date) / 1000), LATEST_TIME);

const hex = (bytes: Uint8Array | undefined | null): string | undefined =>
  bytes === undefined || bytes === null ? undefined : Buffer.from(bytes).toString("hex").toUpperCase();

/** Returns the number of bits of an RSA modulus. @param modulus - Big-endian bytes, which can start with zeros. */
function modulusBits(modulus: Uint8Array | undefined | null): number | undefined {
  if (modulus === undefined || modulus === null) return undefined;
  const first = modulus.findIndex((byte) => byte !== 0);
  return first === -1 ? 0 : (modulus.length - first) * 8 - (Math.clz32(modulus[first]!) - 24);
}

function textTags(tags: object | undefined | null): Record<string, string> {
  return Object.fromEntries(
    Object.entries(tags ?? {}).filter((entry): entry is [string, string] => typeof entry[1] === "string"),
  );
}

/** Returns the members that are neither undefined nor null. */
export function present<T extends object>(members: T): { [K in keyof T]?: NonNullable<T[K]> } {
  const kept: { [K in keyof T]?: NonNullable<T[K]> } = {};
  for (const name in members) {
    const value = members[name];
    if (value !== undefined && value !== null) kept[name] = value;
  }
  return kept;
}
