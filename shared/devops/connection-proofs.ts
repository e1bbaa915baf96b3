import * as z from "zod";
import type { Clock } from "../platform/runtime.ts";
import { entity } from "../platform/storage/entity.ts";
import { keyText } from "../platform/storage/keys.ts";
import type { Tables } from "../platform/storage/tables.ts";
import { DAY_MS } from "../platform/time.ts";
import type { ConnectionLocation, ReplacedCredential } from "./secret-locations.ts";

const record = z.object({ appId: z.string(), tenantId: z.string(), provedAt: z.string() });

/**
 * A proof: the row that records that a service connection signed in as an application. Only a connection with a proof gets the
 * application's next secret: see `replaceConnectionSecret`.
 */
export const ProofRow = entity("Devops", record, { signed: true });
/** Prefix of the partition key `proofs|<organization's URL>`. The row key is `<project ID>|<connection ID>`. */
export const PROOFS = "proofs";

/** Time for which a proof is valid: longer than a rotation including its rollback. */
const VALIDITY_MS = 60 * DAY_MS;

/** The proofs of one organization. */
export interface ConnectionProofs {
  /**
   * Returns true if there is a proof for the connection and the application, of any age: a rotation has then written the
   * connection.
   */
  exists(location: ConnectionLocation, credential: ReplacedCredential): Promise<boolean>;
  /** Returns true if there is a valid proof for the connection and the application. */
  isProven(location: ConnectionLocation, credential: ReplacedCredential): Promise<boolean>;
  /** Stores a proof, valid from now. */
  store(location: ConnectionLocation, credential: ReplacedCredential): Promise<void>;
}

/** Creates the access to the proofs of all organizations. */
export function createConnectionProofs({ tables, clock }: { tables: Tables; clock: Clock }) {
  const keyOf = ({ projectId, connectionId }: ConnectionLocation) => `${projectId}|${connectionId}`.toLowerCase();
  return {
    inOrganization(address: string): ConnectionProofs {
      const partition = `${PROOFS}|${keyText(address.toLowerCase())}`;
      const proofOf = async (location: ConnectionLocation, { appId, tenantId }: ReplacedCredential) => {
        // A proof that can't be read is none: the connection must then sign in, or be named in the request.
        const proof = await tables.get(ProofRow, partition, keyOf(location), { onCorrupt: () => {} });
        return proof?.appId === appId && proof.tenantId === tenantId ? proof : undefined;
      };
      return {
        exists: async (location, credential) => (await proofOf(location, credential)) !== undefined,
        async isProven(location, credential) {
          const proof = await proofOf(location, credential);
          return proof !== undefined && clock.now().getTime() - Date.parse(proof.provedAt) < VALIDITY_MS;
        },
        async store(location, { appId, tenantId }) {
          const provedAt = clock.now().toISOString();
          await tables.put(ProofRow, partition, keyOf(location), { appId, tenantId, provedAt });
        },
      };
    },
  };
}
