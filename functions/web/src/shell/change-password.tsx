import { Button, Field, Input, Text, Title3 } from "@fluentui/react-components";
import { type FormEvent, useId } from "react";
import { api } from "../api/client.ts";
import { ProblemNotice } from "../parts/problem-notice.tsx";
import { useStyles } from "./styles.ts";

/**
 * The form for a user whose password an administrator has set, in place of all views. The change ends the session, so the user
 * signs in with the new password.
 */
export function ChangePassword() {
  const styles = useStyles();
  const title = useId();
  const change = api.useMutation("post", "/auth/password", { onSuccess: () => location.reload() });

  function submit(event: FormEvent<HTMLFormElement>) {
    event.preventDefault();
    const form = new FormData(event.currentTarget);
    const [currentPassword, newPassword] = ["current", "new"].map((name) => String(form.get(name) ?? ""));
    change.mutate({ body: { currentPassword: currentPassword!, newPassword: newPassword!, apiTokens: false } });
  }

  return (
    <main className={styles.signIn}>
      <form className={styles.card} onSubmit={submit} aria-labelledby={title}>
        <Title3 as="h1" id={title}>
          Change your password
        </Title3>
        <Text>An administrator reset your password. Choose a new one, then sign in with it.</Text>
        <Field label="Current password" required>
          <Input name="current" type="password" autoComplete="current-password" autoFocus />
        </Field>
        <Field label="New password" hint="At least 12 characters" required>
          <Input name="new" type="password" autoComplete="new-password" />
        </Field>
        {change.error && <ProblemNotice problem={change.error} />}
        <Button type="submit" appearance="primary" disabled={change.isPending}>
          Change password
        </Button>
      </form>
    </main>
  );
}
