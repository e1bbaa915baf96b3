import * as z from "zod";
import type { Clock } from "../platform/runtime.ts";
import { entity } from "../platform/storage/entity.ts";
import { keyText } from "../platform/storage/keys.ts";
import type { Tables } from "../platform/storage/tables.ts";
import { DAY_MS } from "../platform/time.ts";
import type { ConnectionPlace, ReplacedCredential } from "./secret-locations.ts";

const record = z.object({ appId: z.string(), tenantId: z.string(), provedAt: z.string() });

/**
 * Records that a connection signed in as an application. This decides whether the connection gets the next secret: see
 * `replaceConnectionSecret`.
 */
export const ProofRow = entity("Devops", record, { signed: true });
/** Prefix of the partition key, before the organization's URL. */
export const PROOFS = "proofs";

/** Retention: longer than a rotation including its rollback. */
const HOLDS_MS = 60 * DAY_MS;

/** The connections of an organization that have signed in as an application. */
export interface ConnectionProofs {
  holds(place: ConnectionPlace, of: ReplacedCredential): Promise<boolean>;
  keep(place: ConnectionPlace, of: ReplacedCredential): Promise<void>;
}

export function createConnectionProofs({ tables, clock }: { tables: Tables; clock: Clock }) {
  const keyOf = ({ projectId, connectionId }: ConnectionPlace) => `${projectId}|${connectionId}`.toLowerCase();
  return {
    of(address: string): ConnectionProofs {
      const partition = `${PROOFS}|${keyText(address.toLowerCase())}`;
      return {
        async holds(place, { appId, tenantId }) {
          const proof = await tables.get(ProofRow, partition, keyOf(place));
          if (proof?.appId !== appId || proof.tenantId !== tenantId) return false;
          return clock.now().getTime() - Date.parse(proof.provedAt) < HOLDS_MS;
        },
        async keep(place, { appId, tenantId }) {
          const provedAt = clock.now().toISOString();
          await tables.put(ProofRow, partition, keyOf(place), { appId, tenantId, provedAt });
        },
      };
    },
  };
}
