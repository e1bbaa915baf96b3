import { makeStyles, tokens } from "@fluentui/react-components";
import { useMay } from "../../api/access.ts";
import { Card } from "../../parts/card.tsx";
import { View } from "../../parts/view.tsx";
import { ExpiringSoon } from "./expiring-soon.tsx";
import { AlertFailures } from "./failures.tsx";
import { Health } from "./health.tsx";
import { LastScan } from "./last-scan.tsx";
import { NobodyNotified } from "./nobody-notified.tsx";
import { PendingApprovals } from "./pending-approvals.tsx";
import { ReadFailures } from "./read-failures.tsx";
import { Score } from "./score.tsx";

const useStyles = makeStyles({
  cards: {
    display: "grid",
    gridTemplateColumns: "repeat(auto-fit, minmax(min(100%, 360px), 1fr))",
    gap: tokens.spacingHorizontalL,
  },
});

/** The Overview page, the first that opens: assets that expire soon, status, compliance score, last scan, and failures. */
export default function Overview() {
  const styles = useStyles();
  const may = useMay();
  return (
    <View title="Overview">
      <NobodyNotified />
      {may("listApprovals") && <PendingApprovals />}
      <Card title="Expiring soon">
        <ExpiringSoon />
      </Card>
      <div className={styles.cards}>
        <Card title="Status of all assets">
          <Health />
        </Card>
        <Card title="Compliance">
          <Score />
        </Card>
        <Card title="Last scan">
          <LastScan />
        </Card>
        <Card title="Subscriptions and vaults that could not be read">
          <ReadFailures />
        </Card>
        <Card title="Alerts that could not be delivered">
          <AlertFailures />
        </Card>
      </div>
    </View>
  );
}
