// DNS zones of the simulated cloud: Azure DNS, which Azure Resource Manager changes and name servers answer for.

import { randomUUID } from "node:crypto";
import type { CompanyDnsZone } from "../company/company.ts";

export const RECORD_TYPES = ["A", "NS", "CNAME", "SOA", "TXT"] as const;
export type RecordType = (typeof RECORD_TYPES)[number];

/** The records of one name and type. */
export interface RecordSet {
  name: string;
  type: RecordType;
  ttl: number;
  /** Addresses, names or texts. */
  values: string[];
  metadata: Record<string, string>;
  etag: string;
}

export interface Zone {
  id: string;
  name: string;
  nameServers: string[];
  /** Record sets by `type/name`, both in lower case. A name is relative to the zone, `@` for the zone itself. */
  records: Map<string, RecordSet>;
}

/** A change of a record set, for tests. */
export interface ZoneChange {
  at: string;
  zone: string;
  name: string;
  type: RecordType;
  values: string[];
}

export const recordKey = (type: string, name: string): string => `${type}/${name}`.toLowerCase();

/** Stores the zones of the company and their record sets. They are as declared again after a restart of the cloud. */
export class DnsZones {
  /** By resource ID in lower case. */
  readonly zones = new Map<string, Zone>();
  readonly changes: ZoneChange[] = [];
  /** Names of record sets that name servers don't serve yet, although Azure Resource Manager has them. */
  readonly delayed = new Set<string>();

  addZone({ name, resourceGroup, records = [] }: CompanyDnsZone, subscriptionId: string): Zone {
    const id = `/subscriptions/${subscriptionId}/resourceGroups/${resourceGroup}/providers/Microsoft.Network/dnszones/${name}`;
    const nameServers = [1, 2].map((number) => `ns${number}-01.azure-dns.localhost.`);
    const zone: Zone = { id, name, nameServers, records: new Map() };
    this.zones.set(id.toLowerCase(), zone);
    this.put(zone, { name: "@", type: "NS", ttl: 172_800, values: nameServers, metadata: {} });
    for (const record of records) this.put(zone, { ttl: 3600, metadata: {}, ...record });
    return zone;
  }

  zone(id: string): Zone | undefined {
    return this.zones.get(id.toLowerCase());
  }

  put(zone: Zone, record: Omit<RecordSet, "etag">): RecordSet {
    const stored = { ...record, etag: randomUUID() };
    zone.records.set(recordKey(record.type, record.name), stored);
    this.#record(zone, record, record.values);
    return stored;
  }

  remove(zone: Zone, record: RecordSet): void {
    zone.records.delete(recordKey(record.type, record.name));
    this.#record(zone, record, []);
  }

  #record({ name: zone }: Zone, { name, type }: Pick<RecordSet, "name" | "type">, values: string[]): void {
    this.changes.push({ at: new Date().toISOString(), zone, name, type, values });
  }

  /**
   * Returns what the name servers of a name answer: the records of the type, or the alias of the name. Undefined if no zone
   * contains the name.
   */
  lookup(fqdn: string, type: RecordType): { records: RecordSet[]; exists: boolean } | undefined {
    const name = fqdn.toLowerCase().replace(/\.$/, "");
    const candidates = [...this.zones.values()].filter((one) => name === one.name || name.endsWith(`.${one.name}`));
    const zone = candidates.sort((a, b) => b.name.length - a.name.length)[0];
    if (zone === undefined) return undefined;
    const relative = name === zone.name ? "@" : name.slice(0, -zone.name.length - 1);
    const served = [...zone.records.values()].filter(
      (one) => one.name.toLowerCase() === relative && !this.delayed.has(name),
    );
    const matching = served.filter((one) => one.type === type || one.type === "CNAME");
    return { records: matching, exists: served.length > 0 };
  }

  /** Returns the TXT values of a name, as a certificate authority sees them: aliases are followed. */
  texts(fqdn: string): string[] {
    let name = fqdn;
    for (let hop = 0; hop < 10; hop++) {
      const records = this.lookup(name, "TXT")?.records ?? [];
      const alias = records.find(({ type }) => type === "CNAME")?.values[0];
      if (alias === undefined) return records.flatMap(({ values }) => values);
      name = alias;
    }
    return [];
  }
}
