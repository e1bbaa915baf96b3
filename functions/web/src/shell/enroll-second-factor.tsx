import { Button, Text, Title3 } from "@fluentui/react-components";
import { api } from "../api/client.ts";
import { SecondFactor } from "../views/people/second-factor.tsx";
import { useStyles } from "./styles.ts";

/**
 * The form for a user who must add a second factor, in place of all views.
 *
 * @param props.finish - Called after the user has added one and continues.
 */
export function EnrollSecondFactor({ finish }: { finish(): void }) {
  const styles = useStyles();
  const { data } = api.useQuery("get", "/auth/me/second-factor");
  return (
    <main className={styles.signIn}>
      <section className={styles.card}>
        <Title3 as="h1">Add a second factor</Title3>
        <Text>An administrator requires a second factor for your sign-in. Add an authenticator app or a passkey.</Text>
        <SecondFactor />
        <Button appearance="primary" disabled={!data?.enrolled} onClick={finish}>
          Continue
        </Button>
      </section>
    </main>
  );
}
