import type { AssetKind, CompanyVault } from "../company/company.ts";
import { Collection } from "./collection.ts";
import { generatedCertificate, generatedKey, generatedSecret, initialItemsOf } from "./initial-items.ts";
import { type Certificate, certificateFrom, type Key, keyFrom, type Moment, type Secret, secretFrom } from "./items.ts";

/** A page of a listing: `managed` things are the secret or key behind a certificate. */
export interface Page<K extends AssetKind> {
  items: ({ managed: false; item: ItemOf[K] } | { managed: true; item: Certificate })[];
  /** Where the next page begins; undefined on the last. */
  next?: string;
}

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

/** So many generated certificates are really made; the others are the same ones under other names. */
const SHARED_CERTIFICATES = 16;

/** A vault as it is now. Its settings are those declared; its contents are collections that can change. */
export class Vault {
  settings: CompanyVault;
  readonly subscriptionId: string;
  readonly createdAt: Date;
  readonly collections: { [K in AssetKind]: Collection<ItemOf[K]> };
  readonly deletedSecrets = new Map<string, DeletedSecret>();

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
   * At most `size` things of a kind from `from` on, in a fixed order: first the kind's own, then, for secrets and keys,
   * those that certificates bring with them.
   *
   * @returns undefined when `from` is no position this vault gave out.
   */
  page<K extends AssetKind>(kind: K, from: string | undefined, size: number): Page<K> | undefined {
    const own = this.collections[kind].slots;
    const behind = kind === "certificates" ? 0 : this.collections.certificates.slots;
    const start = from === undefined ? { managed: false, index: 0 } : positionFrom(from);
    if (start === undefined) return undefined;

    const items: Page<K>["items"] = [];
    let { managed, index } = start;
    if (!managed) {
      for (; index < own && items.length < size; index++) {
        const item = this.collections[kind].slot(index);
        if (item !== undefined) items.push({ managed: false, item });
      }
      if (index < own) return { items, next: `o${index}` };
      managed = true;
      index = 0;
    }
    for (; index < behind && items.length < size; index++) {
      const item = this.collections.certificates.slot(index);
      if (item !== undefined) items.push({ managed: true, item });
    }
    return index < behind ? { items, next: `m${index}` } : { items };
  }
}

function positionFrom(text: string): { managed: boolean; index: number } | undefined {
  const match = /^([om])(\d+)$/.exec(text);
  return match === null ? undefined : { managed: match[1] === "m", index: Number(match[2]) };
}
