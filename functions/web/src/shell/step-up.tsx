import { Button, Dialog, DialogSurface, Link, Text, Title3 } from "@fluentui/react-components";
import { useEffect, useState } from "react";
import { client, type Problem, type Schemas } from "../api/client.ts";
import { onStepUpRequired, type StepUpRequest } from "../api/events.ts";
import { type Factor, FactorForm } from "./factor-form.tsx";
import { useStyles } from "./styles.ts";

/**
 * The dialog in which the user confirms the session, after a request needed it. The request is then sent again. The API client
 * opens the dialog only for a user who can confirm: with a second factor (`methods`) or by single sign-on (`signInUrl`).
 */
export function StepUp() {
  const styles = useStyles();
  const [request, setRequest] = useState<StepUpRequest>();
  const [problem, setProblem] = useState<Problem>();
  const [isPending, setPending] = useState(false);
  useEffect(
    () =>
      onStepUpRequired((next) => {
        setProblem(undefined);
        setRequest(next);
      }),
    [],
  );
  if (!request) return null;

  function finish(isConfirmed: boolean) {
    setRequest(undefined);
    request?.finish(isConfirmed);
  }

  async function confirm(factor: Factor) {
    setPending(true);
    const { data, error } = await client.POST("/auth/step-up", { body: factor });
    setPending(false);
    if (data) return finish(true);
    setProblem(error);
  }

  // Undefined if the user did not sign in with single sign-on. The URL already has a query, to which the link adds `returnUrl`.
  const { signInUrl } = request.problem;
  // The first challenge is in the problem of the rejected request. A failed attempt brings a new one, because a challenge for a
  // passkey is accepted once. `methods` is empty for a user without a second factor, who can only sign in again.
  const challenge = challengeIn(problem) ?? challengeIn(request.problem)!;
  // `surfaceMotion={null}`: without an animation, the dialog is complete as soon as it interrupts the user.
  return (
    <Dialog modalType="alert" open surfaceMotion={null}>
      <DialogSurface className={styles.again} aria-label="Confirm your identity">
        <section className={styles.card}>
          <Title3 as="h2">Confirm your identity</Title3>
          {challenge.methods.length > 0 ? (
            <FactorForm
              challenge={challenge}
              problem={problem}
              isPending={isPending}
              submit={(factor) => void confirm(factor)}
              cancel={{ text: "Cancel", act: () => finish(false) }}
            />
          ) : (
            <Button onClick={() => finish(false)}>Cancel</Button>
          )}
          {signInUrl !== undefined && (
            <Text>
              Or{" "}
              <Link href={`${signInUrl}&returnUrl=${encodeURIComponent(`/${location.hash}`)}`}>
                sign in again with single sign-on
              </Link>
              , and then repeat the change.
            </Text>
          )}
        </section>
      </DialogSurface>
    </Dialog>
  );
}

/** Returns the methods with which the user can confirm, from a problem that has them. */
function challengeIn(
  problem: Problem | StepUpRequest["problem"] | undefined,
): Schemas["SecondFactorChallenge"] | undefined {
  const { methods, passkeyOptions = null } = (problem ?? {}) as Partial<Schemas["SecondFactorChallenge"]>;
  return methods && { methods, passkeyOptions };
}
