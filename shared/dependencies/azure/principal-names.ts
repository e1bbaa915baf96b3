import * as z from "zod";
import { parseResourceId } from "../../platform/azure/resource-id.ts";
import type { Resource } from "../edge.ts";
import { managedIdentities, USER_ASSIGNED } from "./queries.ts";

// Names the principals that are managed identities, for the list of identities that may read a vault.

/** Maximum number of IDs in one query, to keep it short. */
const IDS_PER_QUERY = 200;

/**
 * A resource with an identity. `system`: object ID of its system-assigned identity. `user`: that of a user-assigned identity.
 */
const row = z.object({ id: z.string(), type: z.string(), system: z.string(), user: z.string() });

/**
 * Returns the names of the principals that are managed identities, by object ID in lower case. A system-assigned identity has
 * the name of its resource, and `identityOf` is the ID of that resource. A user-assigned identity has its own name. Users,
 * groups and other service principals are absent. One request for each 200 principals.
 *
 * @param query - Queries Resource Graph in all subscriptions that the service can read.
 */
export async function namesOfPrincipals(
  principalIds: readonly string[],
  query: (text: string) => AsyncGenerator<unknown[]>,
): Promise<Map<string, Pick<Resource, "name" | "identityOf">>> {
  const names = new Map<string, Pick<Resource, "name" | "identityOf">>();
  for (let start = 0; start < principalIds.length; start += IDS_PER_QUERY) {
    for await (const rows of query(managedIdentities(principalIds.slice(start, start + IDS_PER_QUERY)))) {
      for (const { id, type, system, user } of rows.flatMap((one) => row.safeParse(one).data ?? [])) {
        const name = parseResourceId(id)?.names.join("/");
        if (name === undefined) continue;
        if (type.toLowerCase() === USER_ASSIGNED) names.set(user.toLowerCase(), { name });
        else names.set(system.toLowerCase(), { name, identityOf: id });
      }
    }
  }
  return names;
}
