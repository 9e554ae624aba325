"""What a browser, Prometheus and a load balancer read: pages, their JSON, metrics, health.

``daemon``, ``server.http`` and the methods on decisions import it. It imports ``history``,
``model`` and ``errors``; jinja2 and prometheus_client are loaded at the first request that needs
them.
"""
