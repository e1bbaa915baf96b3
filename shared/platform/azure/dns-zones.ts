import type { DnsManagementClient, RecordSet } from "@azure/arm-dns";
import { systemRandomness } from "../runtime.ts";
import { samePath } from "./arm.ts";
import { CALL_LIMITS, clientOptions } from "./calls.ts";
import { CloudFailure, failure, unlessMissing } from "./failure.ts";
import type { CloudServices } from "./key-vault.ts";
import { parseResourceId, resourceName } from "./resource-id.ts";

/** A public zone of Azure DNS. */
export interface DnsZone {
  /** Resource ID. */
  id: string;
  /** Such as `example.com`, in lower case. */
  name: string;
}

/**
 * Changes TXT records of Azure DNS. A record set can have values of several writers, so each change adds or removes one value and
 * keeps the others. Every method throws `CloudFailure`.
 */
export interface DnsZones {
  /** Returns the names of the zone's name servers. */
  nameServers(zone: DnsZone): Promise<string[]>;
  /** Adds a value to the TXT record set of a name in the zone. Does nothing if the record set has the value. */
  addText(zone: DnsZone, relativeName: string, value: string): Promise<void>;
  /** Removes a value. Removes the record set with its last value. Does nothing if there is no such value. */
  removeText(zone: DnsZone, relativeName: string, value: string): Promise<void>;
}

/** Short, because a record is needed for minutes. Resolvers may keep earlier values that long. */
const TTL_SECONDS = 60;
/** Azure rejects a change with an outdated ETag. Several runs seldom change the same record set. */
const ATTEMPTS = 5;
const GRANT = "the role DNS Zone Contributor on this zone, which the parameter acmeDnsZoneIds of the deployment names";

/** Returns the zone with this resource ID. */
export const zoneOf = (id: string): DnsZone => ({ id, name: resourceName(id).toLowerCase() });

export function createDnsZones(services: CloudServices): DnsZones {
  const { config, identity, log, randomness = systemRandomness(), limits } = services;
  const endpoint = config.cloud.resourceManager;
  const scope = `${endpoint}/.default`;

  async function client(zone: DnsZone, operation: string, path: string): Promise<DnsManagementClient> {
    const { DnsManagementClient } = await import("@azure/arm-dns");
    const { subscriptionId = "" } = parseResourceId(zone.id) ?? {};
    const resource = `DNS zone ${zone.name}`;
    const target = { operation, resource, grant: GRANT };
    const options = await clientOptions({
      origin: new URL(endpoint).origin,
      scope,
      identity,
      route: (requested) => (samePath(requested, path) ? { target, answer: "accepted" } : undefined),
      resource,
      log,
      randomness,
      limits: { ...CALL_LIMITS, ...limits },
    });
    return new DnsManagementClient(await identity.credential(), subscriptionId, {
      ...options,
      endpoint,
      credentialScopes: [scope],
    });
  }

  const groupOf = ({ id }: DnsZone): string => /\/resourceGroups\/([^/]+)/i.exec(id)?.[1] ?? "";
  const pathOf = ({ id }: DnsZone, name: string): string => `${id}/TXT/${encodeURIComponent(name)}`;

  /** Changes the values of a record set until no other writer changes it at the same time. */
  async function change(
    zone: DnsZone,
    name: string,
    operation: string,
    valuesAfter: (values: string[]) => string[] | undefined,
  ): Promise<void> {
    for (let attempt = 1; ; attempt++) {
      const path = pathOf(zone, name);
      const reading = await client(zone, "read a DNS record", path);
      const found = await unlessMissing(reading.recordSets.get(groupOf(zone), zone.name, name, "TXT"));
      const after = valuesAfter(valuesOf(found));
      if (after === undefined) return;
      const { recordSets } = await client(zone, operation, path);
      try {
        if (after.length === 0)
          await recordSets.delete(groupOf(zone), zone.name, name, "TXT", { ifMatch: found!.etag! });
        else
          await recordSets.createOrUpdate(
            groupOf(zone),
            zone.name,
            name,
            "TXT",
            {
              ttl: found?.ttl ?? TTL_SECONDS,
              ...(found?.metadata && { metadata: found.metadata }),
              txtRecords: after.map((value) => ({ value: partsOf(value) })),
            },
            found ? { ifMatch: found.etag! } : { ifNoneMatch: "*" },
          );
        return;
      } catch (error) {
        const isOutdated = error instanceof CloudFailure && error.status === 412;
        if (!isOutdated) throw error;
        if (attempt === ATTEMPTS)
          throw failure(
            "conflict",
            { operation, resource: `DNS zone ${zone.name}` },
            "another program changes the record",
            { remedy: "No action needed: the service retries." },
          );
      }
    }
  }

  return {
    async nameServers(zone) {
      const reading = await client(zone, "read a DNS zone", zone.id);
      const { nameServers = [] } = await reading.zones.get(groupOf(zone), zone.name);
      return nameServers.map((name) => name.replace(/\.$/, ""));
    },

    addText: (zone, name, value) =>
      change(zone, name, "write a DNS record", (values) => (values.includes(value) ? undefined : [...values, value])),

    removeText: (zone, name, value) =>
      change(zone, name, "delete a DNS record", (values) =>
        values.includes(value) ? values.filter((one) => one !== value) : undefined,
      ),
  };
}

const valuesOf = (record: RecordSet | undefined): string[] =>
  (record?.txtRecords ?? []).map(({ value = [] }) => value.join(""));

/** A text of a record has parts of at most 255 bytes: RFC 1035, section 3.3.14. */
const partsOf = (value: string): string[] => value.match(/.{1,255}/g) ?? [value];
