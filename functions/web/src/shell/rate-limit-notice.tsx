import { MessageBar, MessageBarBody } from "@fluentui/react-components";
import { useEffect, useState } from "react";
import { onWaiting } from "../api/events.ts";
import { useStyles } from "./styles.ts";

/** Says that the rate limit was reached, and when the page continues. */
export function RateLimitNotice() {
  const styles = useStyles();
  const [until, waitUntil] = useState<Date>();
  useEffect(() => onWaiting(waitUntil), []);
  useEffect(() => {
    if (!until) return undefined;
    const timer = setTimeout(() => waitUntil(undefined), Math.max(0, until.getTime() - Date.now()) + 1_000);
    return () => clearTimeout(timer);
  }, [until]);
  // The live region must exist before its content for a screen reader to announce it.
  return (
    <div role="status" className={styles.waiting}>
      {until && (
        <MessageBar intent="info" layout="multiline">
          <MessageBarBody>
            Rate limit reached. The page continues automatically at {until.toLocaleTimeString()}. Until then, it shows
            data that is already loaded.
          </MessageBarBody>
        </MessageBar>
      )}
    </div>
  );
}
