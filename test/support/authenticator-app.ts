import { Secret, TOTP } from "otpauth";

const STEP_MS = 30_000;

/** Returns the code that an authenticator app shows now, or a number of time steps later. Negative: earlier. */
export const codeOf = ({ secret }: { secret: string }, steps = 0): string =>
  new TOTP({ secret: Secret.fromBase32(secret) }).generate({ timestamp: Date.now() + steps * STEP_MS });

/**
 * Confirms an authenticator app with the code of the previous time step, so that the test can still use the current code. The
 * service accepts each code once, and codes that are up to one step old. If the next step starts before the service receives
 * the code, the code is two steps old and rejected. Then the function tries the next code.
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
