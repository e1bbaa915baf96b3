import { isDeepStrictEqual } from "node:util";
import type {
  CertificateClient,
  CertificateOperation,
  CertificatePolicy,
  KeyVaultCertificateWithPolicy,
} from "@azure/keyvault-certificates";
import { Problem } from "../http/problem.ts";
import { systemRandomness } from "../runtime.ts";
import { CALL_LIMITS, clientOptions, type Route } from "./calls.ts";
import { malformedAnswer, unlessMissing } from "./failure.ts";
import { type CloudServices, originOf } from "./key-vault.ts";
import { keyVaultPace, type PacedVault } from "./key-vault-pace.ts";
import { isServiceVault } from "./service-key-vault.ts";

/**
 * Creates versions of certificates in key vaults, for renewals only. The private key is made in the vault and never leaves it: the
 * service receives a signing request (CSR) and returns the issued certificate. Scans use key-vault.ts.
 */

export const CERTIFICATE_KEY_TYPES = ["RSA", "EC"] as const;
export const RSA_KEY_SIZES = [2048, 3072, 4096] as const;
export const KEY_CURVES = ["P-256", "P-384", "P-521"] as const;

/** What a new version of a certificate contains. */
export interface CertificateSpec {
  /** At least one. The first name is also the subject. Lower case. */
  dnsNames: readonly string[];
  /** Undefined: as in the policy of the certificate. */
  key:
    | {
        keyType: (typeof CERTIFICATE_KEY_TYPES)[number];
        keySize?: number | undefined;
        keyCurve?: string | undefined;
        /** Whether the new version keeps the private key of the current one. */
        reuseKey: boolean;
      }
    | undefined;
  exportable: boolean;
}

/** The policy of a certificate, as JSON. It contains no secret. Only this file reads its members. */
export type StoredPolicy = Record<string, unknown>;

/** The current version of a certificate, and the policy for the next one. */
export interface VaultCertificate {
  version: string;
  enabled: boolean;
  /** DER. Undefined until the first version is complete. */
  der: Buffer | undefined;
  tags: Record<string, string>;
  /** `Self`, `Unknown`, or the name of an authority that is connected to the vault. */
  issuerName: string;
  dnsNames: string[];
  keyType: string | undefined;
  keySize: number | undefined;
  keyCurve: string | undefined;
  exportable: boolean;
}

/** The operation that creates a version. */
export interface PendingCertificate {
  /** Identifies the operation. */
  requestId: string;
  status: "inProgress" | "completed" | "cancelled" | "failed";
  /** DER of the signing request. */
  csr: Buffer | undefined;
}

/** The certificates of one vault. Every method throws `CloudFailure`. */
export interface VaultCertificates {
  /** Returns the current version, or undefined if the certificate does not exist. */
  read(name: string): Promise<VaultCertificate | undefined>;
  /** Returns the certificate of a version, DER. Undefined if there is no such version. */
  readVersion(name: string, version: string): Promise<Buffer | undefined>;
  /** Returns the last operation. Undefined if there is none. */
  pending(name: string): Promise<PendingCertificate | undefined>;
  /** Returns the policy of the certificate. Undefined if the certificate does not exist. */
  policy(name: string): Promise<StoredPolicy | undefined>;
  /** Makes the policy of the certificate as it was. Does nothing if it is so, or if the certificate does not exist. */
  restorePolicy(name: string, earlier: StoredPolicy): Promise<void>;
  /**
   * Starts an operation that waits for a certificate of an authority that Key Vault does not know (issuer `Unknown`). The operation
   * replaces the policy of the certificate by `earlier` with another issuer, names and key. Not retried if there is no response.
   *
   * @throws {CloudFailure} conflict while another operation is in progress.
   */
  createRequest(
    name: string,
    spec: CertificateSpec,
    tags: Record<string, string>,
    earlier: StoredPolicy | undefined,
  ): Promise<PendingCertificate>;
  /** Starts an operation by the policy of the certificate. Not retried if there is no response. @throws {CloudFailure} conflict */
  createByPolicy(name: string, tags: Record<string, string>): Promise<PendingCertificate>;
  /** Completes the operation with an issued certificate, the leaf first. The version has the tags of the operation. Not retried if there is no response. */
  merge(name: string, chain: readonly Buffer[]): Promise<VaultCertificate>;
  /** Deletes the operation. Does nothing if there is none. */
  discardPending(name: string): Promise<void>;
}

/** Opens clients that create versions of certificates. */
export interface VaultCertificatesClients {
  /**
   * @throws {CloudFailure} foreignHost if the address is not https, or not under the cloud's Key Vault domain.
   * @throws {Problem} serviceVault if the vault is the service's own.
   */
  open(vault: { name: string; vaultUri: string } & Omit<PacedVault, "origin">): VaultCertificates;
}

const GRANT =
  "the role Key Vault Certificates Officer on this vault, or, where it uses access policies, get, list, create and update for certificates";
const CERTIFICATE = /^\/certificates\/[0-9A-Za-z-]{1,127}(?:\/|\/[0-9a-f]{32})?$/;
const POLICY = /^\/certificates\/[0-9A-Za-z-]{1,127}\/policy$/;
const OPERATION = /^\/certificates\/[0-9A-Za-z-]{1,127}\/(?:create|pending|pending\/merge)$/;
/** Extended key usages of a server's certificate: https://oidref.com/1.3.6.1.5.5.7.3 */
const SERVER_AUTHENTICATION = "1.3.6.1.5.5.7.3.1";

export function createVaultCertificates(services: CloudServices): VaultCertificatesClients {
  const { config, identity, log, randomness = systemRandomness(), limits } = services;
  const suffix = config.cloud.keyVaultSuffix;

  return {
    open({ name: vaultName, vaultUri, ...paceMembers }) {
      const resource = `key vault ${vaultName}`;
      const origin = originOf(vaultUri, suffix, { operation: "open the vault", resource });
      if (isServiceVault(config, vaultName) || isServiceVault(config, origin))
        throw new Problem("serviceVault", `${vaultName} is the service's own key vault. Name another one.`);
      const pace = keyVaultPace.vault({ ...paceMembers, origin });

      /** Creates a client for one call. With `once`, a request without a response is not retried. */
      async function client(operation: string, once = false): Promise<CertificateClient> {
        const { CertificateClient } = await import("@azure/keyvault-certificates");
        const target = { operation, resource, grant: GRANT };
        const route = (path: string): Route | undefined => {
          if (CERTIFICATE.test(path) || POLICY.test(path)) return { target, answer: "parsedByClient" };
          return OPERATION.test(path) ? { target, answer: "accepted" } : undefined;
        };
        const callLimits = { ...CALL_LIMITS, ...limits, ...(once && { unreachableTries: 1 }) };
        const scope = `https://${suffix}/.default`;
        const options = { origin, scope, identity, route, resource, pace, log, randomness, limits: callLimits };
        return new CertificateClient(origin, await identity.credential(), await clientOptions(options));
      }

      function pendingOf(operation: CertificateOperation | undefined): PendingCertificate {
        const { requestId, status = "", csr, error } = operation ?? {};
        if (requestId === undefined)
          throw malformedAnswer({ operation: "read a pending certificate", resource }, "the operation has no ID");
        const state = status === "inProgress" || status === "completed" || status === "cancelled" ? status : "failed";
        return { requestId, status: error ? "failed" : state, csr: csr && Buffer.from(csr) };
      }

      async function create(name: string, policy: CertificatePolicy, tags: Record<string, string>) {
        const creating = await client("create a version of a certificate", true);
        (await creating.beginCreateCertificate(name, policy, { tags })).stopPolling();
        const created = await pending(name);
        if (created === undefined)
          throw malformedAnswer(
            { operation: "create a version of a certificate", resource },
            "no operation was started",
          );
        return created;
      }

      async function readPolicy(name: string): Promise<CertificatePolicy> {
        const { policy } = await (await client("read a certificate")).getCertificate(name);
        if (policy?.issuerName === undefined)
          throw malformedAnswer({ operation: "read a certificate", resource }, "the certificate has no policy");
        return policy;
      }

      /** Returns the policy without its times, so that the same policy is equal. */
      async function storedPolicy(name: string): Promise<StoredPolicy | undefined> {
        const found = await unlessMissing(readPolicy(name));
        if (found === undefined) return undefined;
        const { createdOn: _, updatedOn: __, ...policy } = found;
        return JSON.parse(JSON.stringify(policy)) as StoredPolicy;
      }

      async function pending(name: string): Promise<PendingCertificate | undefined> {
        const reading = await client("read a pending certificate");
        const poller = await unlessMissing(reading.getCertificateOperation(name));
        poller?.stopPolling();
        return poller && pendingOf(poller.getOperationState().certificateOperation);
      }

      return {
        async read(name) {
          const found = await unlessMissing((await client("read a certificate")).getCertificate(name));
          return found && certificateOf(found);
        },

        async readVersion(name, version) {
          const found = await unlessMissing((await client("read a certificate")).getCertificateVersion(name, version));
          return found?.cer && Buffer.from(found.cer);
        },

        pending,
        policy: storedPolicy,

        async restorePolicy(name, earlier) {
          const current = await storedPolicy(name);
          if (current === undefined || isDeepStrictEqual(current, earlier)) return;
          const updating = await client("update the policy of a certificate");
          await unlessMissing(updating.updateCertificatePolicy(name, earlier as unknown as CertificatePolicy));
        },

        createRequest: (name, spec, tags, earlier) =>
          create(name, policyOf(spec, earlier as Partial<CertificatePolicy> | undefined), tags),

        async createByPolicy(name, tags) {
          return await create(name, await readPolicy(name), tags);
        },

        async merge(name, chain) {
          const merging = await client("merge a certificate", true);
          return certificateOf(await merging.mergeCertificate(name, [...chain]));
        },

        async discardPending(name) {
          await unlessMissing((await client("delete a pending certificate")).deleteCertificateOperation(name));
        },
      };
    },
  };
}

/** Returns the policy for a version that another authority signs. Everything but issuer, names and key is as in the earlier policy. */
function policyOf(
  { dnsNames, key, exportable }: CertificateSpec,
  earlier: Partial<CertificatePolicy> = {},
): CertificatePolicy {
  const { certificateType: _, certificateTransparency: __, ...kept } = earlier;
  const { keyType = "RSA", keySize, keyCurve, reuseKey } = key ?? { ...earlier, keyCurve: earlier.keyCurveName };
  const isRsa = keyType.startsWith("RSA");
  const isSameType = earlier.keyType?.startsWith("RSA") === isRsa;
  const usage = isRsa ? (["digitalSignature", "keyEncipherment"] as const) : (["digitalSignature"] as const);
  return {
    ...kept,
    issuerName: "Unknown",
    subject: subjectOf(earlier.subject, dnsNames),
    subjectAlternativeNames: { dnsNames: dnsNames as [string, ...string[]] },
    keyType,
    keySize,
    keyCurveName: keyCurve as CertificatePolicy["keyCurveName"],
    reuseKey,
    exportable,
    contentType: earlier.contentType ?? "application/x-pkcs12",
    keyUsage: (isSameType && earlier.keyUsage) || [...usage],
    enhancedKeyUsage: earlier.enhancedKeyUsage ?? [SERVER_AUTHENTICATION],
    // This service renews the certificate. Key Vault can't renew certificates of unknown authorities.
    lifetimeActions: (earlier.lifetimeActions ?? [{ lifetimePercentage: 80 }]).map((action) => ({
      ...action,
      action: "EmailContacts" as const,
    })),
  };
}

/** Returns the earlier subject, unless its common name is none of the DNS names: an authority would reject the request. */
function subjectOf(earlier: string | undefined, dnsNames: readonly string[]): string {
  const commonName = /(?:^|,)\s*CN\s*=\s*([^,+]+)/i
    .exec(earlier ?? "")?.[1]
    ?.trim()
    .toLowerCase();
  return earlier !== undefined && commonName !== undefined && dnsNames.includes(commonName)
    ? earlier
    : `CN=${dnsNames[0]}`;
}

function certificateOf({ properties, cer, policy }: KeyVaultCertificateWithPolicy): VaultCertificate {
  const { issuerName = "Unknown", keyType, keySize, keyCurveName, exportable = true } = policy ?? {};
  return {
    version: properties.version ?? "",
    enabled: properties.enabled ?? true,
    der: cer && Buffer.from(cer),
    tags: properties.tags ?? {},
    issuerName,
    dnsNames: [...new Set((policy?.subjectAlternativeNames?.dnsNames ?? []).map((name) => name.toLowerCase()))],
    keyType,
    keySize,
    keyCurve: keyCurveName,
    exportable,
  };
}
