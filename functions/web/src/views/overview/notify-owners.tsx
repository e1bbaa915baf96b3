import { Button, Field, Input, makeStyles, Text, tokens } from "@fluentui/react-components";
import { useQueryClient } from "@tanstack/react-query";
import { type FormEvent, useState } from "react";
import { useMay } from "../../api/access.ts";
import { api, client, type Problem, type Schemas } from "../../api/client.ts";
import { ProblemNotice } from "../../parts/problem-notice.tsx";

const useStyles = makeStyles({
  form: { display: "flex", flexDirection: "column", alignItems: "flex-start", gap: tokens.spacingVerticalS },
  address: { width: "min(360px, 100%)" },
});

/** The rules that the button creates. The API accepts each name only once, so a second click creates nothing. */
const rulesFor = (address: string): Schemas["NewAlertRule"][] => [
  {
    name: "Owners: 30, 7 and 1 days before expiry",
    alertType: "expiration",
    thresholds: [30, 7, 1],
    ...delivery(address),
  },
  { name: "Scans that can't read a vault or subscription", alertType: "scanFailure", ...delivery(address) },
];
const delivery = (address: string) => ({
  deliveryMethod: "email" as const,
  deliveryMode: "digest" as const,
  digestFrequency: "daily" as const,
  recipients: [address],
  enabled: true,
  tellRecovery: true,
});

/**
 * The button that notifies owners of assets that expire, and the administrator of gaps in the coverage. Asks for an address only
 * if the account has none.
 */
export function NotifyOwners() {
  const styles = useStyles();
  const may = useMay();
  const queries = useQueryClient();
  // The page has already read the signed-in user (shell/signed-in.tsx), so this sends no request.
  const { data: me } = api.useQuery("get", "/auth/me", {}, { staleTime: Number.POSITIVE_INFINITY });
  const [problem, setProblem] = useState<Problem>();
  const [isPending, setPending] = useState(false);
  if (!may("createAlertRule")) return null;
  const ownAddress = me && "email" in me ? me.email : null;

  async function create(event: FormEvent<HTMLFormElement>) {
    event.preventDefault();
    const address = ownAddress ?? String(new FormData(event.currentTarget).get("address") ?? "");
    setPending(true);
    setProblem(undefined);
    for (const body of rulesFor(address)) {
      const { error } = await client.POST("/alerts/rules", { body });
      if (error && error.code !== "alreadyExists") {
        setProblem(error);
        break;
      }
    }
    await queries.invalidateQueries();
    setPending(false);
  }

  return (
    <form className={styles.form} onSubmit={(event) => void create(event)}>
      <Text block>
        If an asset's owner has an address, the owner gets the email. {ownAddress ?? "The address below"} gets the rest,
        and is notified when a scan can't read a vault or subscription.
      </Text>
      {ownAddress === null && (
        <Field className={styles.address} label="Email address" required>
          <Input name="address" type="email" autoComplete="email" />
        </Field>
      )}
      <Button type="submit" appearance="primary" disabled={isPending}>
        Notify owners 30, 7 and 1 days before expiry
      </Button>
      {problem && <ProblemNotice problem={problem} />}
    </form>
  );
}
