import { Secret, TOTP } from "otpauth";

const STEP_MS = 30_000;

/** Returns the code of an authenticator app whose clock is this number of steps ahead of this machine's. Negative: behind. */
export const codeOf = ({ secret }: { secret: string }, steps = 0): string =>
  new TOTP({ secret: Secret.fromBase32(secret) }).generate({ timestamp: Date.now() + steps * STEP_MS });

/**
 * Confirms an authenticator app with the code of the previous step, which leaves the current one unused. Sends a newer code if
 * a step ended before the service received the code, which it then rejects as two steps old.
 */
export async function confirmWithPreviousCode<A extends { status: number }>(
  app: { secret: string },
  send: (body: { code: string }) => Promise<A>,
): Promise<A> {
  const currentStep = () => Math.floor(Date.now() / STEP_MS);
  for (;;) {
    const step = currentStep();
    const answer = await send({ code: codeOf(app, -1) });
    if (answer.status === 200 || currentStep() === step) return answer;
  }
}
