import type { AssetKind, CompanyVault } from "../company/company.ts";
import { Collection } from "./collection.ts";
import { generatedCertificate, generatedKey, generatedSecret, initialItemsOf } from "./initial-items.ts";
import {
  type Certificate,
  type CertificatePolicyJson,
  certificateFrom,
  type Key,
  keyFrom,
  type Moment,
  type Secret,
  secretFrom,
} from "./items.ts";

/** A page of a list. A `managed` item is the secret or key that belongs to a certificate. */
export interface Page<K extends AssetKind> {
  items: ({ managed: false; item: ItemOf[K] } | { managed: true; item: Certificate })[];
  /** Position of the next page. Undefined on the last page. */
  next?: string;
}

/** Type of an item by kind. */
export interface ItemOf {
  secrets: Secret;
  keys: Key;
  certificates: Certificate;
}

export interface DeletedSecret {
  secret: Secret;
  /** Unix seconds. */
  deletedAt: number;
}

/** The operation that creates a version of a certificate. */
export interface CertificateOperation {
  name: string;
  requestId: string;
  /** The body of the request that started the operation. */
  request: { policy: CertificatePolicyJson; tags?: Record<string, string> };
  status: "inProgress" | "cancelled" | "completed";
  cancellationRequested: boolean;
  /** DER of the signing request. */
  csr: Buffer;
  /** SPKI of the key pair, DER. */
  publicKey: Buffer;
}

/** Number of different X.509 certificates among the generated certificates. The others repeat these under other names. */
const SHARED_CERTIFICATES = 16;

/** The current state of a vault: its declared settings, and its items. */
export class Vault {
  settings: CompanyVault;
  readonly subscriptionId: string;
  readonly createdAt: Date;
  readonly collections: { [K in AssetKind]: Collection<ItemOf[K]> };
  readonly deletedSecrets = new Map<string, DeletedSecret>();
  /** Operations that create certificates, by name in lower case. They are lost when the cloud stops. */
  readonly certificateOperations = new Map<string, CertificateOperation>();

  /** @param moment The time from which the days of the declaration count, and the default age of an item. */
  constructor(declared: CompanyVault, subscriptionId: string, moment: Moment) {
    const { secrets = [], keys = [], certificates = [], generate = {}, ...settings } = declared;
    this.settings = settings;
    this.subscriptionId = subscriptionId;
    this.createdAt = new Date((moment.at - (declared.createdDaysAgo ?? 400) * 86_400) * 1000);
    const name = declared.name.toLowerCase();
    this.collections = {
      secrets: new Collection(
        initialItemsOf(secrets, generate.secrets ?? 0, generatedSecret, (one) => secretFrom(one, name, moment)),
      ),
      keys: new Collection(initialItemsOf(keys, generate.keys ?? 0, generatedKey, (one) => keyFrom(one, name, moment))),
      certificates: new Collection(
        initialItemsOf(certificates, generate.certificates ?? 0, generatedCertificate, (one, index) => ({
          ...certificateFrom(one, name, moment),
          ...(index !== undefined && { shared: index % SHARED_CERTIFICATES }),
        })),
      ),
    };
  }

  get name(): string {
    return this.settings.name;
  }

  /** `/subscriptions/…/vaults/name`. */
  get id(): string {
    const group = this.settings.resourceGroup ?? "rg-security";
    return `/subscriptions/${this.subscriptionId}/resourceGroups/${group}/providers/Microsoft.KeyVault/vaults/${this.name}`;
  }

  get location(): string {
    return this.settings.location ?? "westeurope";
  }

  /**
   * Returns up to `size` items of a kind from the position `from`. The order is fixed: first the items of the kind, then, for
   * secrets and keys, those that belong to certificates. A position is `o` (own) or `m` (managed) with a slot number. A slot
   * stays when its item is removed.
   *
   * @returns undefined if `from` is not a position of this vault
   */
  page<K extends AssetKind>(kind: K, from: string | undefined, size: number): Page<K> | undefined {
    const ownSlots = this.collections[kind].slots;
    const managedSlots = kind === "certificates" ? 0 : this.collections.certificates.slots;
    const start = from === undefined ? { managed: false, index: 0 } : parsePosition(from);
    if (start === undefined) return undefined;

    const items: Page<K>["items"] = [];
    let { managed, index } = start;
    if (!managed) {
      for (; index < ownSlots && items.length < size; index++) {
        const item = this.collections[kind].slot(index);
        if (item !== undefined) items.push({ managed: false, item });
      }
      if (index < ownSlots) return { items, next: `o${index}` };
      managed = true;
      index = 0;
    }
    for (; index < managedSlots && items.length < size; index++) {
      const item = this.collections.certificates.slot(index);
      if (item !== undefined) items.push({ managed: true, item });
    }
    return index < managedSlots ? { items, next: `m${index}` } : { items };
  }
}

function parsePosition(text: string): { managed: boolean; index: number } | undefined {
  const match = /^([om])(\d+)$/.exec(text);
  return match === null ? undefined : { managed: match[1] === "m", index: Number(match[2]) };
}
