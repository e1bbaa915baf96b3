import { type DnsZone, type DnsZones, zoneOf } from "../platform/azure/dns-zones.ts";
import type { Config } from "../platform/config/config.ts";
import { Problem } from "../platform/http/problem.ts";
import type { NameServers } from "../platform/outgoing/name-servers.ts";
import type { Challenge } from "./renewal.ts";

/** Where the record of a name is written: in a zone that ACME_DNS_ZONE_IDS names. */
export interface RecordPlace {
  zone: DnsZone;
  /** Name of the record in the zone, `@` for the zone itself. */
  recordName: string;
}

/** Writes and finds the TXT records that authorities ask for. */
export interface Challenges {
  /**
   * Returns where the record for a domain is written, after the aliases of its name. Undefined if no configured zone contains it.
   *
   * @throws {NameServersUnreachable}
   */
  placeOf(domain: string): Promise<RecordPlace | undefined>;
  /** @throws {CloudFailure} */
  publish(challenge: Challenge): Promise<void>;
  /** Returns whether all name servers of the zone have the record. @throws {CloudFailure}, {NameServersUnreachable} */
  isServed(challenge: Challenge): Promise<boolean>;
  /** Removes the record. Does nothing if it does not exist. @throws {CloudFailure} */
  remove(challenge: Challenge): Promise<void>;
}

/** Returns the name of the record for a domain: RFC 8555, section 8.4. */
export const challengeName = (domain: string): string => `_acme-challenge.${domain.replace(/^\*\./, "")}`;

export function createChallenges(deps: {
  config: Pick<Config, "ACME_DNS_ZONE_IDS">;
  zones: DnsZones;
  nameServers: NameServers;
}): Challenges {
  const { config, zones, nameServers } = deps;
  const configured = config.ACME_DNS_ZONE_IDS.map(zoneOf);

  /** Returns the configured zone with this ID, so that a row can't lead to another one. */
  function requireZone(zoneId: string): DnsZone {
    const zone = configured.find(({ id }) => id.toLowerCase() === zoneId.toLowerCase());
    if (zone === undefined)
      throw new Problem(
        "conflict",
        `ACME_DNS_ZONE_IDS no longer names the zone ${zoneId}. Its records can't be changed.`,
      );
    return zone;
  }

  return {
    async placeOf(domain) {
      const name = await nameServers.resolveAlias(challengeName(domain));
      const [zone] = configured
        .filter((one) => name === one.name || name.endsWith(`.${one.name}`))
        .sort((a, b) => b.name.length - a.name.length);
      if (zone === undefined) return undefined;
      return { zone, recordName: name === zone.name ? "@" : name.slice(0, -zone.name.length - 1) };
    },

    publish: ({ zoneId, recordName, value }) => zones.addText(requireZone(zoneId), recordName, value),
    remove: ({ zoneId, recordName, value }) => zones.removeText(requireZone(zoneId), recordName, value),

    async isServed({ zoneId, recordName, value }) {
      const zone = requireZone(zoneId);
      const name = recordName === "@" ? zone.name : `${recordName}.${zone.name}`;
      return await nameServers.haveText(await zones.nameServers(zone), name, value);
    },
  };
}
