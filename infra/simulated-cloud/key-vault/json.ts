import type { AssetKind } from "../company/company.ts";
import type { CertificateMaker } from "../vaults/certificates.ts";
import { type Certificate, current, type Key, type KeyPolicy, type Secret, type Version } from "../vaults/items.ts";
import { publicJwk } from "../vaults/key-pool.ts";
import type { DeletedSecret, Page, Vault } from "../vaults/vault.ts";
import { thumbprint } from "../x509.ts";

/** Formats a vault's secrets, keys and certificates as Key Vault's JSON: https://learn.microsoft.com/rest/api/keyvault/ */
export class KeyVaultJson {
  readonly #vault: Vault;
  readonly #origin: string;
  readonly #certificates: CertificateMaker;

  /** @param origin The vault's address without a trailing slash */
  constructor(vault: Vault, origin: string, certificates: CertificateMaker) {
    this.#vault = vault;
    this.#origin = origin;
    this.#certificates = certificates;
  }

  /** Returns the address of an object of the vault. */
  idOf(path: string): string {
    return `${this.#origin}/${path}`;
  }

  /** Returns a list entry: without version in its ID and without value. */
  listItem<K extends AssetKind>(kind: K, entry: Page<K>["items"][number]): object {
    const { item } = entry;
    const version = current<Version>(item as Secret);
    return this.#item(kind, item as Secret | Key | Certificate, version, `${kind}/${item.name}`, entry.managed);
  }

  /** Lists all versions of an item in the order of their IDs, which does not follow their age. */
  versions(kind: AssetKind, name: string): object[] {
    const ownItem = this.#vault.collections[kind].get(name);
    const item = ownItem ?? this.#vault.collections.certificates.get(name);
    if (item === undefined) return [];
    // Without an item of its own, the secret or key belongs to the certificate of this name.
    const managed = ownItem === undefined;
    return ([...item.versions] as Version[])
      .sort((a, b) => (a.id < b.id ? -1 : 1))
      .map((version) => this.#item(kind, item, version, `${kind}/${item.name}/${version.id}`, managed));
  }

  /** Returns one version. The caller has checked that it exists. */
  bundle(kind: AssetKind, name: string, versionId: string): object {
    const { secrets, keys, certificates } = this.#vault.collections;
    if (kind === "secrets") {
      const secret = secrets.get(name);
      return secret === undefined
        ? this.#certificateSecret(certificates.get(name)!, versionId)
        : this.secretBundle(secret, versionId);
    }
    if (kind === "keys") {
      const key = keys.get(name);
      return key === undefined
        ? this.#certificateKey(certificates.get(name)!, versionId)
        : this.#keyBundle(key, versionId);
    }
    return this.#certificateBundle(certificates.get(name)!, versionId);
  }

  secretBundle(secret: Secret, versionId: string): object {
    const version = secret.versions.find(({ id }) => id === versionId)!;
    return {
      value: version.value,
      ...(version.contentType !== undefined && { contentType: version.contentType }),
      id: `${this.#origin}/secrets/${secret.name}/${version.id}`,
      attributes: this.#attributes(version),
      ...tagsOf(version),
    };
  }

  deletedSecretItem({ secret, deletedAt }: DeletedSecret): object {
    const version = current(secret);
    const { softDeleteRetentionDays = 90 } = this.#vault.settings;
    return {
      recoveryId: `${this.#origin}/deletedsecrets/${secret.name}`,
      deletedDate: deletedAt,
      scheduledPurgeDate: deletedAt + softDeleteRetentionDays * 86_400,
      ...(version.contentType !== undefined && { contentType: version.contentType }),
      id: `${this.#origin}/secrets/${secret.name}/${version.id}`,
      attributes: this.#attributes(version),
      ...tagsOf(version),
    };
  }

  /**
   * Returns the rotation policy of a key:
   * https://learn.microsoft.com/rest/api/keyvault/keys/get-key-rotation-policy/get-key-rotation-policy
   */
  rotationPolicy(key: Key): object {
    const { rotation, policy } = key;
    if (policy !== undefined) return this.#setPolicy(key.name, policy);
    const days = (count: number) => `P${count}D`;
    const rotationTriggers = [
      ...(rotation?.rotateAfterDays === undefined ? [] : [{ timeAfterCreate: days(rotation.rotateAfterDays) }]),
      ...(rotation?.rotateBeforeExpiryDays === undefined
        ? []
        : [{ timeBeforeExpiry: days(rotation.rotateBeforeExpiryDays) }]),
    ];
    const { created, updated } = current(key);
    return {
      id: `${this.#origin}/keys/${key.name}/rotationpolicy`,
      lifetimeActions: [
        ...rotationTriggers.map((trigger) => ({ trigger, action: { type: "Rotate" } })),
        { trigger: { timeBeforeExpiry: "P30D" }, action: { type: "Notify" } },
      ],
      attributes: {
        ...(rotation?.expiryDays !== undefined && { expiryTime: days(rotation.expiryDays) }),
        created,
        updated,
      },
    };
  }

  /** Returns a rotation policy that a client set. Without a Notify action it has the default one. */
  #setPolicy(name: string, { expiryTime, lifetimeActions, created, updated }: KeyPolicy): object {
    const hasNotify = lifetimeActions.some(({ type }) => type === "Notify");
    return {
      id: `${this.#origin}/keys/${name}/rotationpolicy`,
      lifetimeActions: [
        ...lifetimeActions.map(({ type, ...trigger }) => ({ trigger, action: { type } })),
        ...(hasNotify ? [] : [{ trigger: { timeBeforeExpiry: "P30D" }, action: { type: "Notify" } }]),
      ],
      attributes: { ...(expiryTime !== undefined && { expiryTime }), created, updated },
    };
  }

  /** Returns the policy of a certificate. */
  policy(certificate: Certificate): object {
    const version = current(certificate);
    const { type = "RSA", size, curve } = version.shape;
    const { action, percentage, daysBeforeExpiry } = certificate.renewal;
    const id = `${this.#origin}/certificates/${certificate.name}/policy`;
    const attributes = { enabled: true, created: version.created, updated: version.updated };
    if (certificate.policy !== undefined) return { ...certificate.policy, id, attributes };
    return {
      id,
      key_props: {
        exportable: certificate.exportable,
        kty: type,
        ...(type.startsWith("EC") ? { crv: curve, key_size: bitsOf(curve) } : { key_size: size }),
        reuse_key: false,
      },
      secret_props: { contentType: "application/x-pkcs12" },
      x509_props: {
        subject: version.subject,
        sans: { dns_names: version.dnsNames },
        ekus: ["1.3.6.1.5.5.7.3.1", "1.3.6.1.5.5.7.3.2"],
        key_usage: ["digitalSignature", "keyEncipherment"],
        validity_months: version.validityMonths,
        basic_constraints: { ca: false },
      },
      lifetime_actions: [
        {
          trigger:
            daysBeforeExpiry === undefined
              ? { lifetime_percentage: percentage ?? 80 }
              : { days_before_expiry: daysBeforeExpiry },
          action: { action_type: action },
        },
      ],
      issuer: { name: version.issuer, cert_transparency: false },
      attributes,
    };
  }

  /** Returns a list entry of a version. `managed`: whether the secret or key belongs to a certificate. */
  #item(kind: AssetKind, item: Secret | Key | Certificate, version: Version, path: string, managed: boolean): object {
    const id = `${this.#origin}/${path}`;
    const commonFields = { attributes: this.#attributes(version, kind), ...tagsOf(version) };
    if (kind === "keys") return { kid: id, ...commonFields, ...(managed && { managed }) };
    if (kind === "certificates") {
      const certificate = item as Certificate;
      const certificateVersion = certificate.versions.find((one) => one.id === version.id)!;
      return {
        id,
        x5t: thumbprint(this.#certificates.der(certificate, certificateVersion)).toString("base64url"),
        ...commonFields,
      };
    }
    const contentType = managed ? "application/x-pkcs12" : (version as { contentType?: string }).contentType;
    return { ...(contentType !== undefined && { contentType }), id, ...(managed && { managed }), ...commonFields };
  }

  #keyBundle(key: Key, versionId: string): object {
    const version = key.versions.find(({ id }) => id === versionId)!;
    const { type } = version.shape;
    const signs = ["sign", "verify"];
    const encrypts = ["encrypt", "decrypt", "wrapKey", "unwrapKey"];
    const operations = type?.startsWith("EC") ? signs : type === "oct-HSM" ? encrypts : [...encrypts, ...signs];
    const kid = `${this.#origin}/keys/${key.name}/${version.id}`;
    return {
      key: { kid, key_ops: operations, ...publicJwk(version.shape, key.name) },
      attributes: this.#attributes(version, "keys"),
      ...tagsOf(version),
    };
  }

  #certificateKey(certificate: Certificate, versionId: string): object {
    const version = certificate.versions.find(({ id }) => id === versionId)!;
    const kid = `${this.#origin}/keys/${certificate.name}/${version.id}`;
    const jwk = publicJwk(version.shape, certificate.name);
    return {
      key: { kid, key_ops: ["sign", "verify"], ...jwk },
      attributes: this.#attributes(version, "keys"),
      ...tagsOf(version),
      managed: true,
    };
  }

  /**
   * Key Vault returns a PKCS #12 file with the private key. The simulated vault has no private key and returns the certificate.
   */
  #certificateSecret(certificate: Certificate, versionId: string): object {
    const version = certificate.versions.find(({ id }) => id === versionId)!;
    return {
      value: this.#certificates.der(certificate, version).toString("base64"),
      contentType: "application/x-pkcs12",
      id: `${this.#origin}/secrets/${certificate.name}/${version.id}`,
      managed: true,
      attributes: this.#attributes(version),
      ...tagsOf(version),
      kid: `${this.#origin}/keys/${certificate.name}/${version.id}`,
    };
  }

  #certificateBundle(certificate: Certificate, versionId: string): object {
    const version = certificate.versions.find(({ id }) => id === versionId)!;
    const der = this.#certificates.der(certificate, version);
    return {
      id: `${this.#origin}/certificates/${certificate.name}/${version.id}`,
      kid: `${this.#origin}/keys/${certificate.name}/${version.id}`,
      sid: `${this.#origin}/secrets/${certificate.name}/${version.id}`,
      x5t: thumbprint(der).toString("base64url"),
      cer: der.toString("base64"),
      attributes: this.#attributes(version),
      ...tagsOf(version),
      policy: this.policy(certificate),
    };
  }

  /**
   * Returns the attributes: https://learn.microsoft.com/rest/api/keyvault/secrets/get-secret/get-secret#deletionrecoverylevel
   */
  #attributes(version: Version, kind?: AssetKind): object {
    const { softDelete = true, softDeleteRetentionDays = 90, purgeProtection = true } = this.#vault.settings;
    const recoverable = softDeleteRetentionDays === 90 ? "Recoverable" : "CustomizedRecoverable";
    return {
      enabled: version.enabled,
      ...(version.notBefore !== undefined && { nbf: version.notBefore }),
      ...(version.expires !== undefined && { exp: version.expires }),
      created: version.created,
      updated: version.updated,
      recoveryLevel: softDelete ? `${recoverable}${purgeProtection ? "" : "+Purgeable"}` : "Purgeable",
      ...(softDelete && { recoverableDays: softDeleteRetentionDays }),
      ...(kind === "keys" && { exportable: false, hsmPlatform: "0" }),
    };
  }
}

function tagsOf({ tags }: Version): object {
  return tags === undefined ? {} : { tags };
}

/** Returns the key size of a curve in bits. */
function bitsOf(curve: string | undefined): number {
  return curve === "P-521" ? 521 : curve === "P-384" ? 384 : 256;
}
