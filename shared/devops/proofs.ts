import * as z from "zod";
import type { Clock } from "../platform/runtime.ts";
import { entity } from "../platform/storage/entity.ts";
import { keyText } from "../platform/storage/keys.ts";
import type { Tables } from "../platform/storage/tables.ts";
import { DAY_MS } from "../platform/time.ts";
import type { ConnectionPlace, ReplacedCredential } from "./places.ts";

const record = z.object({ appId: z.string(), tenantId: z.string(), provedAt: z.string() });

/** Decides that a connection gets an application's next secret: see `replaceConnectionSecret`. */
export const ProofRow = entity("Devops", record, { signed: true });
/** Followed by the organization's address. */
export const PROOFS = "proofs";

/** Longer than a rotation lasts with all that it may have to put back. */
const HOLDS_MS = 60 * DAY_MS;

/** Which connections of an organization have signed in as which application. */
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
