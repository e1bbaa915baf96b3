import type { Actor, Confirmations } from "../shared/platform/http/endpoint.ts";
import type { Services } from "./services.ts";

/**
 * Returns the confirmations that a rotation would still need now, for its dry run, which needs none. As in `guarded` of the
 * endpoints: only a rotation that names the vault secrets to write needs some.
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
