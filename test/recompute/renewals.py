"""Computes when the renewal of a certificate is late, from its policy and tags. No certificate of the company has earlier versions."""

DAY = 86_400


def window_end(asset):
    """Returns the last second of a certificate's renewal window, or None without a renewer."""
    if asset["type"] != "certificate" or asset["source"] != "keyVault":
        return None
    start, expires = asset["notBefore"] if asset["notBefore"] is not None else asset["created"], asset["expires"]
    if start is None or expires is None:
        return None
    if is_acmebots(asset):
        before = min(30 * DAY, (expires - start) // 3)
        return expires - before + before // 4
    if not asset.get("autoRenew") or asset["issuerName"].lower() == "unknown":
        return None
    trigger = asset["trigger"]
    if trigger.get("lifetime_percentage") is not None:
        begin = start + (expires - start) * trigger["lifetime_percentage"] // 100
    else:
        begin = max(start, expires - trigger["days_before_expiry"] * DAY)
    return begin + min(3 * DAY, (expires - begin) // 4)


def is_acmebots(asset):
    """Returns whether Acmebot renews a certificate. Its tag takes precedence over the policy."""
    return any(name.lower() == "issuer" and value.lower() == "acmebot" for name, value in asset["tags"].items())


def is_late(asset, now):
    """Returns whether the window has passed. None without a renewer."""
    end = window_end(asset)
    return None if end is None else now >= end + 1
