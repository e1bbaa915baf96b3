import { Button, Field, Input, Link, Text } from "@fluentui/react-components";
import { type PublicKeyCredentialRequestOptionsJSON, startAuthentication } from "@simplewebauthn/browser";
import { type FormEvent, useState } from "react";
import { asProblem, type Problem, type Schemas } from "../api/client.ts";
import { ProblemNotice } from "../parts/problem-notice.tsx";
import { useStyles } from "./styles.ts";

/** A second factor, as a request contains it. */
export type Factor = Pick<Schemas["Credentials"], "totp" | "recoveryCode" | "passkey">;
/** The methods that the user can use, from a problem such as `secondFactorRequired`. */
export type FactorChallenge = Schemas["SecondFactorChallenge"];

/** Returns the challenge in a response of the sign-in. Undefined if the sign-in failed for another reason. */
export function challengeOf(problem: Problem | null): FactorChallenge | undefined {
  if (problem?.code !== "secondFactorRequired" && problem?.code !== "secondFactorFailed") return undefined;
  const { methods, passkeyOptions = null } = problem as unknown as FactorChallenge;
  return { methods, passkeyOptions };
}

/**
 * The form for a second factor, in the sign-in and in step-up: the code of an authenticator app, a passkey, or a recovery code.
 *
 * @param props.problem - The problem of the last attempt. Undefined before the first.
 */
export function FactorForm({
  challenge: { methods, passkeyOptions },
  problem,
  isPending,
  submit,
  cancel,
}: {
  challenge: FactorChallenge;
  problem: Problem | undefined;
  isPending: boolean;
  submit(factor: Factor): void;
  cancel: { text: string; act(): void };
}) {
  const styles = useStyles();
  const [usesRecoveryCode, setRecoveryCode] = useState(methods.every((method) => method === "recoveryCode"));
  const [browserProblem, setBrowserProblem] = useState<Problem>();
  const shownProblem = browserProblem ?? problem;
  const takesCode = usesRecoveryCode || methods.includes("totp");

  function submitCode(event: FormEvent<HTMLFormElement>) {
    event.preventDefault();
    setBrowserProblem(undefined);
    const code = String(new FormData(event.currentTarget).get("code") ?? "");
    submit(usesRecoveryCode ? { recoveryCode: code } : { totp: code });
  }

  async function submitPasskey() {
    setBrowserProblem(undefined);
    try {
      submit({ passkey: await answerChallenge(passkeyOptions) });
    } catch (error) {
      setBrowserProblem(asProblem(error));
    }
  }

  return (
    <form className={styles.form} onSubmit={submitCode}>
      <Text>{usesRecoveryCode ? "Enter one of your recovery codes." : "Confirm that it is you."}</Text>
      {takesCode && (
        <Field label={usesRecoveryCode ? "Recovery code" : "Code of your authenticator app"} required>
          <Input
            // A new field for each kind of code, so that neither keeps the text of the other.
            key={String(usesRecoveryCode)}
            name="code"
            autoComplete={usesRecoveryCode ? "off" : "one-time-code"}
            inputMode={usesRecoveryCode ? "text" : "numeric"}
            autoFocus
          />
        </Field>
      )}
      {shownProblem && <ProblemNotice problem={shownProblem} />}
      {takesCode && (
        <Button type="submit" appearance="primary" disabled={isPending}>
          Verify
        </Button>
      )}
      {passkeyOptions && !usesRecoveryCode && (
        <Button
          type="button"
          appearance={takesCode ? "secondary" : "primary"}
          disabled={isPending}
          onClick={() => void submitPasskey()}
        >
          Use a passkey
        </Button>
      )}
      {methods.includes("recoveryCode") && methods.length > 1 && (
        <Link as="button" type="button" onClick={() => setRecoveryCode(!usesRecoveryCode)}>
          {usesRecoveryCode ? "Use another method" : "Use a recovery code"}
        </Link>
      )}
      <Link as="button" type="button" onClick={cancel.act}>
        {cancel.text}
      </Link>
    </form>
  );
}

/** Lets the browser ask the user for a passkey. @throws an error if the user cancels or has no passkey here. */
export async function answerChallenge(
  options: FactorChallenge["passkeyOptions"],
): Promise<NonNullable<Factor["passkey"]>> {
  const optionsJSON = options as unknown as PublicKeyCredentialRequestOptionsJSON;
  return (await startAuthentication({ optionsJSON })) as unknown as NonNullable<Factor["passkey"]>;
}
