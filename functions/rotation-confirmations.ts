import type { Actor, Confirmations } from "../shared/platform/http/endpoint.ts";
import type { Services } from "./services.ts";

/**
 * Returns the confirmations (a step-up, an approval) that a rotation would still need now, so that its dry run can list them. A
 * dry run itself needs none. Only a rotation that names the vault secrets to write needs confirmations. The endpoints that start
 * a rotation have the same rule in `guarded`.
 *
 * @param targets - The vault secrets that the request names. Undefined if it names none.
 */
export async function confirmationsFor(
  targets: readonly string[] | undefined,
  actor: Actor,
  { gate, access }: Pick<Services, "gate"> & { access: { stepUp: Pick<Services["access"]["stepUp"], "isFresh"> } },
): Promise<Confirmations> {
  if (targets === undefined) return { stepUp: false, approval: false };
  const { stepUp, approval } = await gate.confirmations();
  return { stepUp: stepUp && !access.stepUp.isFresh(actor), approval };
}
