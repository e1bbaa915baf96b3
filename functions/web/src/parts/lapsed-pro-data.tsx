import { Button } from "@fluentui/react-components";
import { type ReactNode, useState } from "react";
import { useCurrentUser } from "../api/access.ts";

/**
 * Renders PRO data, which remains readable after the license expired. Without a license, the data is loaded only after a click:
 * most installations without a license have no such data, and the API rejects the request.
 */
export function LapsedProData({ children }: { children: ReactNode }) {
  const { tier } = useCurrentUser();
  const [isShown, setShown] = useState(false);
  if (tier === "pro" || isShown) return children;
  return (
    <div>
      <Button size="small" onClick={() => setShown(true)}>
        Show data from the time of an earlier PRO license
      </Button>
    </div>
  );
}
