import type { Confirmations } from "../shared/platform/http/endpoint.ts";
import type { Services } from "./services.ts";

/**
 * Returns the confirmations (a step-up, an approval) that a rotation would need, so that its dry run can list them. A dry run
 * itself needs none. Only a rotation that names the vault secrets to write needs some: the same rule as `guarded` of the
 * endpoints.
 *
 * @param targets - The vault secrets that the request names. Undefined if it names none.
 */
export const confirmationsFor = async (
  targets: readonly string[] | undefined,
  { gate }: Pick<Services, "gate">,
): Promise<Confirmations> => (targets === undefined ? { stepUp: false, approval: false } : await gate.confirmations());
