import { promises as dns, NODATA, NOTFOUND } from "node:dns";
import { SECOND_MS } from "../time.ts";

/** Asks DNS servers for records, past the caches of the system. */
export interface NameServers {
  /**
   * Follows the aliases (CNAME) of a name, and returns the name at their end: the name itself if it has none.
   *
   * @throws {NameServersUnreachable}
   */
  resolveAlias(name: string): Promise<string>;
  /**
   * Returns whether each of a zone's name servers returns the TXT value for the name.
   *
   * @param nameServers - Names of the servers.
   * @throws {NameServersUnreachable} if a server did not answer.
   */
  haveText(nameServers: readonly string[], name: string, value: string): Promise<boolean>;
}

/** Thrown if a DNS server did not answer. */
export class NameServersUnreachable extends Error {
  override readonly name = "NameServersUnreachable";
}

const LIMITS = { timeout: 3 * SECOND_MS, tries: 2 };
/** A longer chain of aliases is a loop or a mistake. */
const MAX_ALIASES = 8;

/**
 * Creates the client.
 *
 * @param servers - Addresses of servers that answer all questions. Empty: aliases are asked from the system's resolver, and TXT
 * records from the zone's name servers.
 */
export function createNameServers(servers: readonly string[]): NameServers {
  const createResolver = (addresses: readonly string[] = servers) => {
    const resolver = new dns.Resolver(LIMITS);
    if (addresses.length > 0) resolver.setServers([...addresses]);
    return resolver;
  };

  /** Returns the answer, or undefined if the name has no such record. */
  async function ask<T>(question: string, answer: Promise<T>): Promise<T | undefined> {
    try {
      return await answer;
    } catch (error) {
      const { code } = error as { code?: string };
      if (code === NODATA || code === NOTFOUND) return undefined;
      throw new NameServersUnreachable(`The DNS servers did not answer the question for ${question} (${code}).`);
    }
  }

  async function addressesOf(nameServers: readonly string[]): Promise<string[][]> {
    if (servers.length > 0) return servers.map((server) => [server]);
    return await Promise.all(
      nameServers.map(async (name) => {
        const addresses = await ask(name, createResolver().resolve4(name));
        if (addresses === undefined) throw new NameServersUnreachable(`The name server ${name} has no address.`);
        return addresses;
      }),
    );
  }

  return {
    async resolveAlias(name) {
      let current = name;
      for (let hop = 0; hop < MAX_ALIASES; hop++) {
        const [target] = (await ask(current, createResolver().resolveCname(current))) ?? [];
        if (target === undefined) return current;
        current = target.toLowerCase().replace(/\.$/, "");
      }
      throw new NameServersUnreachable(`The aliases of ${name} form a loop, or are more than ${MAX_ALIASES}.`);
    },

    async haveText(nameServers, name, value) {
      for (const addresses of await addressesOf(nameServers)) {
        const records = (await ask(name, createResolver(addresses).resolveTxt(name))) ?? [];
        if (!records.some((parts) => parts.join("") === value)) return false;
      }
      return true;
    },
  };
}
