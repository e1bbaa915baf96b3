import { Button, Divider, Field, Input, mergeClasses, Text, Title3 } from "@fluentui/react-components";
import { type FormEvent, useId, useState } from "react";
import { api } from "../api/client.ts";
import { ProblemNotice } from "../parts/problem-notice.tsx";
import { challengeOf, FactorForm } from "./factor-form.tsx";
import { PRODUCT } from "./product.ts";
import { storeView } from "./restored-view.ts";
import { useStyles } from "./styles.ts";

/**
 * The sign-in form: username and password, then the second factor of a user who has one, and single sign-on if it is
 * configured.
 *
 * @param props.hasEnded - Whether a session expired. The form then appears over the current view, which keeps its input.
 * @param props.signedIn - Called after a sign-in with a password. Single sign-on leaves the page instead.
 */
export function SignIn({ hasEnded = false, signedIn }: { hasEnded?: boolean; signedIn(username: string): void }) {
  const styles = useStyles();
  const title = useId();
  const sso = api.useQuery("get", "/auth/sso/status");
  /** The username and password of the first step, which the second step sends again. */
  const [credentials, setCredentials] = useState<{ username: string; password: string }>();
  /** The challenge of the second step. Kept if the second step fails for another reason, such as too many attempts. */
  const [challenge, setChallenge] = useState<ReturnType<typeof challengeOf>>();
  const signIn = api.useMutation("post", "/auth/login", {
    onSuccess: (body) => signedIn("user" in body ? body.user.username : ""),
    onError: (problem) => setChallenge((before) => challengeOf(problem) ?? before),
  });

  function submit(event: FormEvent<HTMLFormElement>) {
    event.preventDefault();
    const form = new FormData(event.currentTarget);
    const entered = { username: text(form, "username"), password: text(form, "password") };
    setCredentials(entered);
    signIn.mutate({ body: { ...entered, session: true } });
  }

  return (
    <section className={mergeClasses(styles.card, hasEnded && styles.within)} aria-labelledby={title}>
      <Title3 as="h1" id={title}>
        {PRODUCT}
      </Title3>
      {challenge && credentials && (
        <FactorForm
          challenge={challenge}
          problem={signIn.error && signIn.error.code !== "secondFactorRequired" ? signIn.error : undefined}
          isPending={signIn.isPending}
          submit={(factor) => signIn.mutate({ body: { ...credentials, ...factor, session: true } })}
          cancel={{
            text: "Back to sign-in",
            act: () => {
              signIn.reset();
              setChallenge(undefined);
            },
          }}
        />
      )}
      {hasEnded && <Text>Your session has expired. Sign in to continue where you left off.</Text>}
      {!challenge && sso.data?.enabled && (
        <>
          <Button
            as="a"
            appearance="primary"
            href={`/auth/sso/login?returnUrl=${encodeURIComponent("/")}`}
            onClick={storeView}
          >
            {sso.data.loginButtonText}
          </Button>
          {!sso.data.ssoOnlyMode && <Divider>or</Divider>}
        </>
      )}
      {!challenge && !sso.data?.ssoOnlyMode && (
        <form className={styles.form} onSubmit={submit}>
          <Field label="Username" required>
            <Input name="username" autoComplete="username" autoFocus />
          </Field>
          <Field label="Password" required>
            <Input name="password" type="password" autoComplete="current-password" />
          </Field>
          {signIn.error && <ProblemNotice problem={signIn.error} />}
          <Button type="submit" appearance={sso.data?.enabled ? "secondary" : "primary"} disabled={signIn.isPending}>
            {signIn.isPending ? "Signing in" : "Sign in"}
          </Button>
        </form>
      )}
    </section>
  );
}

/** Returns the text of a field. */
const text = (form: FormData, name: string): string => String(form.get(name) ?? "");
